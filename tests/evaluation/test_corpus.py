"""What documents cost, of an encoder their pseudo-likelihoods, and what it fills in."""

import csv
import json
import math
import random
from pathlib import Path

import numpy as np
import pytest
import torch

import scaling
from scaling.base.errors import ScalingError
from scaling.cli import main
from scaling.config.compose import load
from scaling.config.schema import build
from scaling.data.codec import Codec
from scaling.data.tokenizer import Byte
from scaling.evaluation.corpus import windows
from scaling.evaluation.generate import prompt
from scaling.evaluation.likelihood import MaskedScorer, Request, masked
from tests.evaluation.conftest import FOLLOWS, WORDS, jsonl, refused, sentence


def test_windows_score_each_token_once():
    text, ids = list(range(10, 21)), {"start": 1, "bos": 1, "eos": 2}
    assert [tuple(map(list, one)) for one in windows("decoder", ids, text, None, 6, 3)] == [
        ([1], [10, 11, 12, 13, 14, 15]),
        ([12, 13, 14, 15], [16, 17, 18]),
        ([14, 15, 16, 17, 18], [19, 20]),
    ]
    asked = [tuple(map(list, one)) for one in windows("encoder_decoder", ids, text[:5], None, 4, 2)]
    assert asked == [([2], [10, 11]), ([10, 11, 2], [12, 13]), ([11, 12, 13, 2], [14])]
    assert list(windows("encoder_decoder", ids, [5, 2], [7, 2], 4, 2)) == [((7, 2), (5, 2))]
    assert list(windows("decoder", ids, [5, 2], [7, 2], 4, 2)) == [((7, 2, 1), (5, 2))]


@pytest.mark.parametrize("family", ["decoder", "encoder_decoder"])
def test_a_corpus_costs_what_its_documents_do(family, language):
    found = scaling.evaluate_corpus(language.ids[family], runs=language.runs)
    manifest = json.loads(next((language.runs.parent / "data").glob("*/manifest.json")).read_text())
    (shard,) = manifest["splits"]["validation"]["text"]
    assert (found.documents, found.tokens, found.bytes) == (shard["documents"], shard["tokens"], shard["bytes"])
    assert found.nats == pytest.approx(sum(one["nats"] for one in found.scored))
    assert found.metrics["bits_per_byte"] == pytest.approx(found.nats / math.log(2) / found.bytes)
    assert found.metrics["perplexity"] == pytest.approx(math.exp(found.nats / found.tokens))
    assert all(low < found.metrics[name] < high for name, (low, high) in found.intervals.items())
    if family == "decoder":  # no document sees another one, and each begins behind the start token
        model, costs = scaling.load(language.ids[family], runs=language.runs), []
        for line in Path(language.data[0]).read_text().splitlines():
            ids = (*model.tokenizer.encode([json.loads(line)["text"]])[0], model.tokenizer.specials["eos"])  # type: ignore[union-attr]
            if len(ids) in {one["tokens"] for one in found.scored[:3]}:
                costs.append(float(model.scorer.nats([Request((ids[-1],), ids)])[0].sum()))
        assert all(np.abs(np.array(costs) - one["nats"]).min() < 1e-3 for one in found.scored[:3])
        assert found.metrics["nats_per_token"] < 0.8 * math.log(len(WORDS))  # it knows the language


def test_a_long_document_is_read_in_windows_and_written_to_a_file(language, tmp_path, capsys):
    draw, to, run = random.Random(2), tmp_path / "each.csv", language.ids["decoder"]
    long = jsonl(tmp_path / "long.jsonl", ({"text": " ".join(sentence(draw, n))} for n in (150, 5, 90, 70)))
    file = next((language.runs.parent / "data").glob("*/tokenizer.json"))
    tokenizer, words = f"{{kind: File, path: {file}}}", ["data.validation=0.5", f"runs={language.runs}"]
    output = refused(capsys, "evaluate-corpus", run, long, *words)
    assert "not been prepared with the run's tokenizer" in output
    assert f"data.tokenizer='{tokenizer}'" in output
    assert main(["data", "prepare", long, f"data.tokenizer={tokenizer}", *words]) == 0
    capsys.readouterr()
    scored = ["evaluate-corpus", run, long, *words, "--stride", "20", "--split", "train", "--json"]
    assert main([*scored, "--to", str(to)]) == 0
    document, rows = json.loads(capsys.readouterr().out), list(csv.DictReader(to.open()))
    assert document["nats"] == pytest.approx(sum(float(row["nats"]) for row in rows))
    assert max(int(row["tokens"]) for row in rows) > 64
    for row in rows:
        assert float(row["bits_per_byte"]) == pytest.approx(float(row["nats"]) / math.log(2) / int(row["bytes"]))
    own = scaling.evaluate_corpus(run, long, *words[:1], stride=64, split="train", runs=language.runs)
    assert own.tokens == document["tokens"]
    assert own.nats != document["nats"]  # another context


BEGINS = [True] * 8 + [False] * 3


@torch.no_grad()
def definition(model, text, masking):
    """A pass for each token, in the window around it."""
    total = 0.0
    for at, token in enumerate(text):
        first, end = max(0, min(at - 3, len(text) - 6)), at + 1
        while masking == "word" and end < len(text) and not BEGINS[text[end]]:
            end += 1
        seen = [3 if at <= place < end else one for place, one in enumerate(text)][first : first + 6]
        logits = model.logits(prompt(torch.tensor([[1, *seen, 2]])))[0, 1 + at - first]
        total -= float(logits.log_softmax(-1)[token])
    return total


def test_pseudo_likelihoods_are_their_definition():
    torch.manual_seed(1)
    size = {"width": 16, "layers": 1, "heads": 2, "vocabulary": 11, "length": 8}
    model = build("model", load("encoder")["model"], size).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    texts = [[4, 8, 9, 5], [6], [5, 9, 10, 8, 4, 7, 8, 6, 10, 4], [7, 7, 9]]
    for masking in ("token", "word"):
        scorer = MaskedScorer(model, {"cls": 1, "sep": 2, "mask": 3, "pad": 0}, 8, masking, np.array(BEGINS), tokens=24)
        expected = [definition(model, text, masking) for text in texts]
        np.testing.assert_allclose(scorer.nats(texts), expected, atol=1e-9)


def test_a_corpus_has_a_pseudo_perplexity_and_masks_are_filled(language, capsys):
    run, runs, word = language.ids["encoder"], f"runs={language.runs}", WORDS[3]
    found = scaling.evaluate_corpus(run, runs=language.runs, limit=5, masking="word")
    mean = found.nats / found.tokens
    assert found.metrics == pytest.approx({"nats_per_token": mean, "perplexity": math.exp(mean)})
    filled = scaling.load(run, runs=language.runs).fill(f"{word} [MASK] {FOLLOWS[word][0]} [MASK]", best=3)
    chances = [one.probability for one in filled[1]]
    assert filled[0][0].text.strip() in WORDS
    assert chances == sorted(chances, reverse=True)
    assert len(chances) == 3
    capsys.readouterr()
    assert main(["generate", run, "--prompt", f"{word} [MASK]", runs]) == 0
    assert "mask 1: " in capsys.readouterr().out
    codec, ids = Codec(Byte().fit(iter(()))), {"sentinel_0": 260, "sentinel_1": 261}
    a, b = (list(tokens) for tokens in codec.encode(["the", " law"]))
    assert masked(codec, ids, "the [MASK] law [MASK]") == [*a, 260, *b, 261]
    with pytest.raises(ScalingError, match="has 2 sentinels, and the text has more gaps"):
        masked(codec, ids, "[MASK] [MASK] [MASK]")


def test_a_mistake_is_one_line(language, capsys):
    decoder, encoder = (language.ids[family] for family in ("decoder", "encoder"))
    for words, message in (
        (["evaluate-corpus", decoder, "synthetic"], "it is no corpus of texts"),
        (["evaluate-corpus", decoder, "--stride", "65"], "it is from 1 to the window of 64"),
        (["evaluate-corpus", decoder, "--masking", "word"], "does not apply to a run of the family decoder"),
        (["evaluate-corpus", encoder, "--stride", "4"], "does not apply to a run of the family encoder"),
        (["evaluate-options", decoder, "which_language"], "it is no task of texts"),
        (["generate", encoder, "--prompt", "ba"], "it has no mask"),
        (["generate", encoder, "--prompt", "ba [MASK]" * 60], "more than the window of 34"),
    ):
        assert message in refused(capsys, *words, f"runs={language.runs}")
