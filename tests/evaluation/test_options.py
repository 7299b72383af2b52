"""Multiple choice by likelihood: the conventions worked by hand, and a run that knows its language."""

import json
import math
import random
from itertools import pairwise

import pytest
import torch

import scaling
from scaling.base.batch import Batch
from scaling.base.errors import ScalingError
from scaling.cli import main
from scaling.data.codec import Codec
from scaling.data.tokenizer import Byte
from scaling.evaluation.options import Choosing, Prompting, Question, Scored
from scaling.metrics import bootstrap
from tests.evaluation.conftest import FOLLOWS, jsonl, refused, sentence, untrained

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
    values = {name: each.value for name, each in bootstrap(Choosing(), [one, other], [one, other]).items()}
    accuracies = {"raw": 0.5, "character": 1, "token": 1, "unconditional": 0.5}
    bits = pytest.approx((6.0 + 0.5) / (5 + 4) / math.log(2))
    assert values == {**{f"accuracy_{name}": value for name, value in accuracies.items()}, "bits_per_byte": bits}


def task(folder, rows, **changes):
    """The path of a task with these rows."""
    folder.mkdir(exist_ok=True)
    data = {"kind": "Task", "answer": "options", "text": "{text}", "metric": "Accuracy", "tokenizer": "Byte", **changes}
    data["files"] = {split: jsonl(folder / f"{split}.jsonl", own) for split, own in rows.items()}
    (folder / "own.yaml").write_text(json.dumps({"data": data}))
    return str(folder / "own.yaml")


def continuations(folder):
    """A task of which continuation of a text is the language's own; the other has its words in another order."""
    draw, rows = random.Random(5), []
    for _ in range(80):
        words, right = sentence(draw, 16), draw.randrange(2)
        mixed = words[8:]
        while all(b in FOLLOWS[a] for a, b in pairwise(mixed)):
            draw.shuffle(mixed)
        both = [" ".join(words[8:]), " ".join(mixed)]
        rows.append({"text": " ".join(words[:8]), "a": both[right], "b": both[1 - right], "label": right})
    return task(folder, {"train": rows[:20], "validation": rows[20:]}, options=["{a}", "{b}"])


def test_a_run_finds_its_own_language_likelier(language, tmp_path):
    own = continuations(tmp_path)
    found = scaling.evaluate_options(language.ids["decoder"], own, shots=0, frame="none", runs=language.runs)
    assert (found.examples, found.chance, found.truncated) == (60, 0.5, 0)
    # What an option costs alone shows its order too, and what is left of it is how it begins.
    for name, value in found.metrics.items():
        assert name == "bits_per_byte" or value >= (0.6 if name == "accuracy_unconditional" else 0.95), name
    assert found.score == found.metrics["accuracy_character"]
    assert all(low <= found.metrics[name] <= high for name, (low, high) in found.intervals.items())


def test_the_command_prints_the_prompt_and_writes_each_example(language, tmp_path, capsys):
    rows = [{"text": word, "label": FOLLOWS[word][0]} for word in FOLLOWS]
    labels, to = sorted({row["label"] for row in rows}), tmp_path / "each.jsonl"
    own = task(tmp_path, dict.fromkeys(("train", "validation"), rows), answer="class", labels=labels)
    words = ["evaluate-options", language.ids["decoder"], own, "--shots", "2", "--frame", "none", "--split", "train"]
    capsys.readouterr()
    assert main([*words, f"runs={language.runs}", "--to", str(to)]) == 0
    printed = capsys.readouterr().out
    assert "10 examples" in printed  # shots of the split are not scored
    assert main([*words, f"runs={language.runs}", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    prompt = document["prompt"]
    assert printed.startswith(prompt)
    assert prompt.count("\n\n") == 2
    assert all(line.split()[1] == FOLLOWS[line.split()[0]][0] for line in prompt.strip().split("\n\n"))
    assert document["chance"] == pytest.approx(1 / len(labels))
    scored = [json.loads(line) for line in to.read_text().splitlines()]
    assert document["score"] == sum(row["choice_character"] in row["right"] for row in scored) / 10
    gold = [(row["nats"][row["right"][0]], row["bytes"][row["right"][0]]) for row in scored]
    bits = sum(nats for nats, _ in gold) / sum(count for _, count in gold) / math.log(2)
    assert document["metrics"]["bits_per_byte"] == pytest.approx(bits)


IDS = {
    "gpt2": {"eos": 2, "start": 2},
    "bert": {"cls": 259, "sep": 260, "mask": 261},
    "t5": {"eos": 2, "start": 0, "pad": 0, "sentinel_0": 260, "sentinel_1": 261},
    "marian": {"eos": 2, "start": 0, "pad": 0},
}
BEFORE, OPTIONS, AFTER = "I put", ("the", "they"), " fork down."


def nats(logits, tokens):
    return -float(logits.double().log_softmax(-1).gather(-1, torch.tensor(tokens)[:, None]).sum())


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
    model = scaling.load(tmp_path / "run", device="cpu")
    before, option, after = (list(ids) for ids in model.tokenizer.encode([BEFORE, f" {OPTIONS[0]}", AFTER]))
    module = model.module
    if family == "gpt2":
        read = torch.tensor([[2, *before, *option, *after]])
        expected = nats(module.logits(Batch(read, read))[0, len(before) : -1], option + after)
    elif family == "bert":
        read = torch.tensor([[259, *before, *[261] * len(option), *after, 260]])
        expected = nats(module.logits(Batch(read, read))[0, 1 + len(before) :][: len(option)], option)
        with pytest.raises(ScalingError, match="an encoder sees what comes after a token"):
            scaling.evaluate_options(*words, shots=0, **where)
    else:
        source = [*before, 260, *after, 2] if family == "t5" else [*before, 2]
        target = [260, *option, 261] if family == "t5" else option + after
        read = torch.tensor([[0, *target[:-1]]])
        expected = nats(module.logits(Batch(read, read, source=torch.tensor([source])))[0], target)
    assert scored["nats"][0] == pytest.approx(expected, rel=1e-5)
    assert scored["characters"] == (4, 5)  # with the space before each


def test_a_mistake_is_one_line(language, tmp_path, capsys):
    own, rows = continuations(tmp_path), [{"text": "ba de", "label": "0 1"}]
    tags = task(tmp_path / "tags", {"train": rows, "validation": rows}, answer="tags", labels=["0", "1"])
    for words, message in (
        ([own, "--shots", "21"], "the training split has 20"),
        ([own, "--formulation", "letters", "--frame", "none"], "take --frame question"),
        ([tags], "take a task whose answer is class or options"),
    ):
        error = refused(capsys, "evaluate-options", language.ids["decoder"], *words, f"runs={language.runs}")
        assert message in error
