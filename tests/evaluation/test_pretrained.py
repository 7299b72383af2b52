"""Runs that were not finetuned: options and documents by their likelihood, and what an encoder fills in."""

import csv
import json
import math
import random
from pathlib import Path

import numpy as np
import pytest
import torch

import scaling
from scaling.base.batch import Batch
from scaling.config.compose import load
from scaling.config.schema import build
from scaling.data.codec import Codec
from scaling.data.text import Text
from scaling.data.tokenizer import Byte
from scaling.evaluation.corpus import windows
from scaling.evaluation.generate import prompt
from scaling.evaluation.likelihood import MaskedScorer, Request, masked
from scaling.evaluation.options import Choosing, Prompting, Question, Scored
from scaling.metrics.metric import bootstrap
from tests.command_line import printed, refuses
from tests.data.conftest import jsonl
from tests.evaluation.conftest import FOLLOWS, WORDS, refused, sentence, untrained

SKY = Question("What is blue?", ("grass", "the sky"), (1,))


def test_options_are_written_as_olmes_writes_them():
    cloze, letters, plain = Prompting(), Prompting("letters"), Prompting(frame="none")
    assert cloze.question(SKY) == ("Question: What is blue?\nAnswer:", None)
    assert cloze.answers(SKY) == [" grass", " the sky"]
    assert letters.answers(SKY) == [" A", " B"]
    assert letters.head([SKY]) == "Question: What is blue?\n A. grass\n B. the sky\nAnswer: B\n\n"
    assert plain.question(SKY) == ("What is blue?", None)
    assert plain.question(Question("Put [MASK] down.", ("it",), (0,))) == ("Put", " down.")


def test_each_normalisation_by_hand():
    # Raw: 4 < 5. By character: 4/2 > 5/3 > 6/4. By token: 6/3 < 4/1. Less what it costs alone: 5 − 4.5 is the least.
    one = Scored(0, (2,), (4.0, 5.0, 6.0), (3.0, 4.5, 5.0), (1, 2, 3), (2, 3, 4), (2, 3, 5))
    assert one.choices == {"raw": 0, "character": 2, "token": 2, "unconditional": 1}
    other = Scored(1, (0, 1), (1.0, 0.5), (0.0, 0.0), (1, 1), (2, 2), (2, 4))
    values = bootstrap(Choosing(), [one, other], [one, other])["metrics"]
    accuracies = {"raw": 0.5, "character": 1, "token": 1, "unconditional": 0.5}
    bits = pytest.approx((6.0 + 0.5) / (5 + 4) / math.log(2))
    assert values == {**{f"accuracy_{name}": value for name, value in accuracies.items()}, "bits_per_byte": bits}


def task(folder, rows, **changes):
    data = {"kind": "Task", "answer": "options", "text": "{text}", "metric": "Accuracy", "tokenizer": "Byte", **changes}
    data["files"] = {split: jsonl(folder / f"{split}.jsonl", own) for split, own in rows.items()}
    (folder / "own.yaml").write_text(json.dumps({"data": data}))
    return str(folder / "own.yaml")


def test_a_run_finds_its_own_language_likelier(language, tmp_path, capsys):
    """Which continuation of a text is the language's own; the other has its words in another order."""
    draw, rows = random.Random(5), []
    for _ in range(80):
        words, right = sentence(draw, 16), draw.randrange(2)
        mixed = sorted(words[8:])
        both = [" ".join(words[8:]), " ".join(mixed)]
        rows.append({"text": " ".join(words[:8]), "a": both[right], "b": both[1 - right], "label": right})
    own = task(tmp_path, {"train": rows[:20], "validation": rows[20:]}, options=["{a}", "{b}"])
    found = scaling.evaluate_options(language.ids["decoder"], own, shots=0, frame="none", runs=language.runs)
    assert (found.examples, found.chance, found.truncated) == (60, 0.5, 0)
    # What an option costs alone shows its order too, and what is left of it is how it begins.
    for name, value in found.metrics.items():
        assert name == "bits_per_byte" or value >= (0.6 if name == "accuracy_unconditional" else 0.95), name
    assert found.score == found.metrics["accuracy_character"]
    assert all(low <= found.metrics[name] <= high for name, (low, high) in found.intervals.items())
    for words, message in (
        (["--shots", "21"], "the training split has 20"),
        (["--formulation", "letters", "--frame", "none"], "take --frame question"),
    ):
        error = refused(capsys, "evaluate-options", language.ids["decoder"], own, *words, f"runs={language.runs}")
        assert message in error


def test_the_command_prints_the_prompt_and_writes_each_example(language, tmp_path, capsys):
    rows = [{"text": word, "label": FOLLOWS[word][0]} for word in FOLLOWS]
    labels, to = sorted({row["label"] for row in rows}), tmp_path / "each.jsonl"
    own = task(tmp_path, dict.fromkeys(("train", "validation"), rows), answer="class", labels=labels)
    words = ["evaluate-options", language.ids["decoder"], own, "--shots", "2", "--frame", "none", "--split", "train"]
    output = printed(capsys, *words, f"runs={language.runs}", "--to", to)
    document = printed(capsys, *words, f"runs={language.runs}", "--json")
    assert output.startswith(document["prompt"])
    shots = document["prompt"].strip().split("\n\n")
    assert [line.split()[1] for line in shots] == [FOLLOWS[line.split()[0]][0] for line in shots]
    assert document["chance"] == pytest.approx(1 / len(labels))
    scored = [json.loads(line) for line in to.read_text().splitlines()]
    assert len(scored) == 12 - len(shots) == 10  # shots of the split are not scored
    assert document["score"] == sum(row["choice_character"] in row["right"] for row in scored) / 10


IDS = {
    "gpt2": {"eos": 2, "start": 2},
    "bert": {"cls": 259, "sep": 260, "mask": 261},
    "t5": {"eos": 2, "start": 0, "pad": 0, "sentinel_0": 260, "sentinel_1": 261},
    "marian": {"eos": 2, "start": 0, "pad": 0},
}
BEFORE, OPTIONS, AFTER = "I put", ("the", "they"), " fork down."


@pytest.mark.parametrize("family", IDS)
@torch.no_grad()
def test_options_in_a_gap_are_scored_as_the_family_writes_or_reads_them(family, tmp_path):
    tokenizer = tmp_path / "tokenizer.json"
    Codec(Byte().fit(iter(()))).save(tokenizer)
    untrained(tmp_path / "run", family, IDS[family], tokenizer, width=16, layers=1, vocabulary=262, length=64)
    rows = [{"text": f"{BEFORE} [MASK]{AFTER}", "options": OPTIONS, "label": 0}]
    gaps = task(tmp_path, {"train": rows, "validation": rows}, options=["{options}"])
    words, where = (str(tmp_path / "run"), gaps), {"runs": tmp_path, "device": "cpu"}
    (scored,) = scaling.evaluate_options(*words, frame="none", shots=0, **where).scored
    nats = pytest.approx(scored["nats"], rel=1e-5)
    model = scaling.load(tmp_path / "run", device="cpu")
    before, option, after = (list(ids) for ids in model.tokenizer.encode([BEFORE, f" {OPTIONS[0]}", AFTER]))
    read, source, first, target = {  # the tokens, those of the source, the first that predicts, and what is predicted
        "gpt2": ([2, *before, *option, *after], None, len(before), option + after),
        "bert": ([259, *before, *[261] * len(option), *after, 260], None, 1 + len(before), option),
        "t5": ([0, 260, *option], [*before, 260, *after, 2], 0, [260, *option, 261]),
        "marian": ([0, *option, *after[:-1]], [*before, 2], 0, option + after),
    }[family]
    tokens = torch.tensor([read])
    logits = model.module.logits(Batch(tokens, tokens, source=None if source is None else torch.tensor([source])))
    chances = logits[0, first:][: len(target)].double().log_softmax(-1)
    assert scored["nats"][0] == pytest.approx(-float(chances[range(len(target)), target].sum()), rel=1e-5)
    if family == "bert":
        refuses("an encoder sees what comes after a token", scaling.evaluate_options, *words, shots=0, **where)
        refuses("there is no token to score", model.scorer.gap, before, [], after)
    assert scored["characters"] == (4, 5)  # with the space before each
    if family == "t5":  # a text without a gap, before it, changes nothing
        both = [{**rows[0], "text": "I put down"}, *rows]
        mixed = task(tmp_path, {"train": both, "validation": both}, options=["{options}"])
        assert scaling.evaluate_options(words[0], mixed, frame="none", shots=0, **where).scored[1]["nats"] == nats


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
def test_a_corpus_costs_what_its_documents_do(family, language, monkeypatch):
    found = scaling.evaluate_corpus(language.runs / "store" / language.ids[family])  # of a ledger elsewhere
    manifest = json.loads(next((language.runs.parent / "data").glob("*/manifest.json")).read_text())
    (shard,) = manifest["splits"]["validation"]["text"]
    assert all(getattr(found, name) == shard[name] for name in ("documents", "tokens", "bytes"))
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
        monkeypatch.setattr(Text, "changed", lambda *_: scaling.ScalingError("it has changed"))
        assert scaling.load(language.ids[family], runs=language.runs).saved.ids == model.saved.ids


def test_a_long_document_is_read_in_windows_and_written_to_a_file(language, tmp_path, capsys):
    draw, to, run = random.Random(2), tmp_path / "each.csv", language.ids["decoder"]
    long = jsonl(tmp_path / "long.jsonl", ({"text": " ".join(sentence(draw, n))} for n in (150, 5, 90, 70)))
    words = ["data.validation=0.5", f"runs={language.runs}"]
    error = refused(capsys, "evaluate-corpus", run, long, *words)
    assert "not been prepared with the run's tokenizer" in error
    tokenizer = error.partition("data.tokenizer='")[2].partition("'")[0]
    printed(capsys, "data", "prepare", long, f"data.tokenizer={tokenizer}", *words)
    scored = ["evaluate-corpus", run, long, *words, "--stride", "20", "--split", "train", "--json"]
    document, rows = printed(capsys, *scored, "--to", to), list(csv.DictReader(to.open()))
    assert document["nats"] == pytest.approx(sum(float(row["nats"]) for row in rows))
    assert max(int(row["tokens"]) for row in rows) > 64
    own = scaling.evaluate_corpus(run, long, *words[:1], stride=64, split="train", runs=language.runs)
    assert own.tokens == document["tokens"]
    assert own.nats != document["nats"]  # another context


def test_pairs_are_scored_whole_without_a_stride(language, tmp_path, capsys):
    draw, run, runs = random.Random(2), language.ids["decoder"], f"runs={language.runs}"
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("".join(" ".join(sentence(draw, 5)) + "\n" for _ in range(20)))
    corpus = {"kind": "Parallel", "source": str(tmp_path / "a.txt"), "target": str(tmp_path / "b.txt")}
    tokenizer = {"kind": "File", "path": str(scaling.load(run, runs=language.runs).saved.tokenizer)}
    data = {"kind": "Text", "corpus": corpus, "tokenizer": tokenizer, "validation": 0.5}
    (tmp_path / "pairs.yaml").write_text(json.dumps({"data": data}))
    printed(capsys, "data", "prepare", pairs := str(tmp_path / "pairs.yaml"), runs)
    assert printed(capsys, "evaluate-corpus", run, pairs, runs, "--json")["stride"] is None
    assert "pairs are scored whole" in refused(capsys, "evaluate-corpus", run, pairs, "--stride", "4", runs)


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
    assert len(chances) == 3
    assert chances == sorted(chances, reverse=True)
    assert "mask 1: " in printed(capsys, "generate", run, "--prompt", f"{word} [MASK]", runs)
    codec, ids = Codec(Byte().fit(iter(()))), {"sentinel_0": 260, "sentinel_1": 261}
    a, b = codec.encode(["the", " law"])
    assert masked(codec, ids, "the [MASK] law [MASK]") == [*a, 260, *b, 261]
    refuses("has 2 sentinels, and the text has more gaps", masked, codec, ids, "[MASK] [MASK] [MASK]")


def test_a_mistake_is_one_line(language, capsys):
    decoder, encoder = (language.ids[family] for family in ("decoder", "encoder"))
    for words, message in (
        (["evaluate-corpus", decoder, "synthetic"], "it is not a corpus of texts"),
        (["evaluate-corpus", decoder, "--stride", "65"], "it is from 1 to the window of 64"),
        (["evaluate-corpus", encoder, "--stride", "4"], "does not apply to a run of the family encoder"),
        (["evaluate-options", decoder, "which_language"], "it is not a task of texts"),
        (["generate", encoder, "--prompt", "ba"], "it has no mask"),
        (["generate", encoder, "--prompt", "ba [MASK]", "--steps", "4"], "steps: an encoder only fills masks"),
        (["generate", encoder, "--prompt", "ba [MASK]" * 60], "more than the window of 34"),
    ):
        assert message in refused(capsys, *words, f"runs={language.runs}")
