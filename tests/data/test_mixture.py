"""A mixture gives each domain its share of the windows, and measures the loss on each."""

from pathlib import Path

import numpy as np
import pytest

import scaling
from scaling.base.errors import ScalingError
from scaling.config.compose import load
from scaling.config.schema import build
from scaling.data.text import prepare
from scaling.training.experiment import assemble
from scaling.training.point import point
from tests.command_line import refuses

ENDLESS = {"kind": "Synthetic", "symbols": 64, "order": 1, "exponent": 0}
LENGTH = 20  # symbols so many and so alike that no two windows are the same
SHORT = {**ENDLESS, "seed": 1, "tokens": 70 * LENGTH, "validation": 90 * LENGTH}
LONG = {**ENDLESS, "seed": 2, "tokens": 200 * LENGTH, "validation": 300 * LENGTH}


def opened(split="train", **keys):
    line = {"kind": "Mixture", "domains": {"short": SHORT, "long": LONG}, "shares": {"short": 1, "long": 3}, **keys}
    return build("data", line).open(split, Path())


def windows_of(source, count):
    read = source.read(np.arange(count), LENGTH)
    return [[row.tobytes() for row in read.tokens[read.domains == number]] for number in range(2)]


def test_a_pass_reads_every_window_and_repeats_the_domain_that_ends_first():
    # The share of the short domain, windows of the long and of the short one in a pass, and how many of them differ.
    for share, long, short in ((1, (range(208, 211), 200), ([70], 70)), (9, ([200], 200), (range(597, 604), 70))):
        source = opened(shares={"short": share, "long": 3})
        count = source.windows(LENGTH)
        found = windows_of(source, count)
        for windows, (counts, differing) in zip(found, (long, short)):
            assert len(windows) in counts
            assert len(set(windows)) == differing
        before = windows_of(source, count - 1)  # the last window of a domain ends the pass
        assert min(len(set(before[0])) - 200, len(set(before[1])) - 70) == -1
    assert opened().read(np.arange(8), LENGTH).domains.tolist() == [0, 0, 1, 0, 0, 0, 1, 0]  # on every machine


def test_held_out_windows_are_the_same_whatever_the_shares_and_none_twice():
    one, other = opened("validation"), opened("validation", shares={"short": 1, "long": 1})
    assert one.fingerprint == other.fingerprint
    assert one.fingerprint != opened("validation", weights={"short": 1, "long": 2}).fingerprint
    assert opened().fingerprint != opened(shares={"short": 1, "long": 1}).fingerprint
    count = one.windows(LENGTH)
    long, short = windows_of(one, count)
    assert len(set(short)) == len(short) == 90
    assert len(set(long)) == len(long)
    assert abs(len(long) - 90) <= 1


def test_windows_are_those_of_the_domains_with_their_true_losses():
    of_long = opened(domains={"a": LONG, "b": LONG}, shares={"a": 1, "b": 0})
    alone, whole = (each.read(np.arange(200), LENGTH, documents=True) for each in (of_long.sources[0], of_long))
    for name in ("tokens", "documents", "truth"):
        assert np.array_equal(getattr(whole, name), getattr(alone, name))


def test_what_cannot_be_mixed_is_one_line():
    for domains, shares, message in (
        ("{a: synthetic, b: synthetic_pairs}", "{a: 1, b: 1}", "domains.b: its data are pairs, which are not mixed"),
        ("{a: synthetic, b: synthetic_hard}", "{a: 1, b: 1}", "domains.b: its 257 tokens are not the 65 of a"),
        ("{a: synthetic, b: synthetic}", "{a: 1}", "shares.b: a domain has no weight"),
        ("{a: synthetic, b: synthetic}", "{a: 0, b: 0}", "shares: all weights are 0"),
    ):
        words = ["size=tiny", "data.kind=Mixture", f"data.domains={domains}", f"data.shares={shares}"]
        refuses(f"data.{message}", assemble, load("decoder", words))
    few = {**SHORT, "tokens": LENGTH // 2}
    with pytest.raises(ScalingError, match=f"domains.few: its train split has no window of {LENGTH} tokens"):
        opened(domains={"few": few, "long": LONG}, shares={"few": 1, "long": 1}).windows(LENGTH)


def test_domains_of_one_vocabulary_and_two_tokenizers_are_not_mixed(tmp_path):
    texts = {"a": "one text of words", "b": "zwölf ganz andere Wörter"}
    for name, text in texts.items():
        (tmp_path / f"{name}.txt").write_text("\n\n".join(f"{text} {number}" for number in range(80)))
    corpus = {name: {"kind": "Files", "files": str(tmp_path / f"{name}.txt")} for name in texts}
    line = {"kind": "Text", "tokenizer": {"kind": "ByteBPE", "vocabulary": 270}, "validation": 0.2}
    domains = {name: {**line, "corpus": corpus[name]} for name in texts}
    data = build("data", {"kind": "Mixture", "domains": domains, "shares": {"a": 1, "b": 1}})
    for part in data.domains.values():
        prepare(part, tmp_path)
    refuses(r"domains.b: .*give all domains one tokenizer", data.open, "train", tmp_path)


LINE = "{{kind: Synthetic, symbols: 16, order: 1, exponent: {exponent}, validation: 4096}}"
EASY, HARD = LINE.format(exponent=4), LINE.format(exponent=0)


def test_a_run_measures_each_domain_and_its_point_has_the_proportions(tmp_path):
    words = [
        f"data={{kind: Mixture, domains: {{easy: {EASY}, hard: {HARD}}}, shares: {{easy: 3, hard: 1}}}}",
        "size={width: 16, layers: 1, heads: 1, head_width: 16, length: 16}",
        *("trainer.max_steps=60", "train.batch=16", "evaluate.windows=null", "optimizer.lr=1e-2"),
        *("log.wandb=disabled", f"runs={tmp_path}/runs"),
    ]
    result = scaling.train("decoder", *words, progress=False).result
    losses = result["losses"]
    assert losses["easy"] < 1.5 < 2.7 < losses["hard"]  # nothing is to be learned of the hard one: ln 16 is 2.77
    assert sum(losses.values()) / 2 == pytest.approx(result["loss_plain"], rel=1e-6)
    entropies = [load("decoder", [f"data={line}"]).build("data").entropy for line in (EASY, HARD)]
    assert result["entropy"] == pytest.approx(sum(entropies) / 2)
    columns, other = (point(assemble(load("decoder", [*words, word]))) for word in ("seed=0", "data.shares.easy=1"))
    assert {key for key in columns if columns[key] != other[key]} == {"p_1", "p_2"}  # one law, along the proportions
    assert (columns["p_1"], columns["p_2"]) == (0.75, 0.25)
    assert columns["p_2_definition"] == "fraction of the tokens that are of hard"
