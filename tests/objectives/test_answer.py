"""How the examples of a task are framed for each family, by hand; and predictions of logits that say the truth."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from scaling.base.batch import IGNORE, Batch
from scaling.base.errors import ScalingError
from scaling.config.schema import build
from scaling.data.batches import Batches, evaluation, training
from scaling.data.plan import BatchSize
from scaling.data.source import Vocabulary
from scaling.data.task import Examples
from scaling.objectives.answer import Answer, cut, starts

LABELS: dict[str, Any] = {"labels": ["no", "yes"], "metric": "Accuracy"}
WORD = {"kind": "WordPiece", "vocabulary": 200, "alphabet": 60}
LINES: dict[str, dict[str, Any]] = {
    "class": {"answer": "class", "text": "{a}", **LABELS},
    "pair": {"answer": "class", "text": "{a}", "second": "{b}", **LABELS},
    "either": {"answer": "number", "text": "{a}", "second": "{b}", "order": "either", "metric": "Correlation"},
    "classes": {"answer": "classes", "text": "{a}", **LABELS},
    "options": {"answer": "options", "text": "{a}", "options": ["{b}"], "metric": "Accuracy"},
    "tags": {"answer": "tags", "text": "{a}", **LABELS, "metric": "TagAccuracy"},
    "span": {"answer": "span", "text": "{a}", "second": "{b}", "none": "allowed", "metric": "SQuAD2"},
    "text": {"answer": "text", "text": "{a}", "metric": "ExactMatch"},
}
CONTEXT = "Anna met Bob in Rome on a cold day, and Carl saw both of them there at the old bridge by the river"
ROWS: dict[str, list[dict[str, Any]]] = {
    "class": [{"a": "one two three", "label": "yes"}, {"a": "four", "label": "no"}],
    "pair": [{"a": "one two three", "b": "four five", "label": "yes"}, {"a": "six", "b": "one", "label": "no"}],
    "either": [{"a": "one two", "b": "four", "label": 1.5}, {"a": "six", "b": "one", "label": 3}],
    "classes": [{"a": "one two", "label": ["no", "yes"]}, {"a": "six", "label": []}],
    "options": [
        {"a": "one", "b": ["two", "three four", "six"], "label": 1},
        {"a": "six", "b": ["one", "two"], "label": 0},
    ],
    "tags": [{"a": ["Anna", "unfathomable", "x"], "label": ["no", "yes", "no"]}, {"a": ["six"], "label": ["yes"]}],
    "span": [
        {"a": "who met Bob?", "b": CONTEXT, "label": {"text": ["Carl saw"], "answer_start": [CONTEXT.index("Carl")]}},
        {"a": "why?", "b": "No one knows", "label": {"text": [], "answer_start": []}},
    ],
    "text": [{"a": "one two", "label": ["three", "four"]}, {"a": "six", "label": ["one"]}],
}
FAMILIES = ("encoder", "decoder", "encoder_decoder")
CASES = [(kind, family) for kind in LINES for family in FAMILIES if (kind, family) != ("text", "encoder")]


@pytest.fixture
def opened(tmp_path: Path) -> Callable[..., Examples]:
    def one(kind: str, split: str = "train", **keys: Any) -> Examples:
        file = tmp_path / f"{kind}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in ROWS[kind]))
        line = {"kind": "Task", "tokenizer": WORD, "files": {"train": str(file), "validation": str(file)}}
        return build("data", {**line, **LINES[kind], **keys}).open(split, tmp_path / "data")

    return one


def answer(source: Examples, family: str, length: int = 40, **keys: Any) -> Answer:
    return build("objective", {"kind": "Answer", **keys}, Vocabulary.of(source), length, family)


def batches(source: Examples, objective: Answer) -> Batches:
    return evaluation(source, objective, len(source.items) + 5)[0]


def in_order(source: Examples, objective: Answer) -> Batch:
    """All rows of the split, those of each example together."""
    every = batches(source, objective)
    assert every.features is not None
    rows = np.arange(len(every.features.examples))
    read = source.read(every.features.examples, 0)
    width = int(every.features.lengths.max())
    return objective(replace(read, starts=every.features.starts[rows], width=width), rows.astype(np.uint64))


def words(source: Examples, objective: Answer, ids: torch.Tensor) -> str:
    """Ids as text, specials in capitals, filling left out."""
    names = {number: f" {name.upper()} " for name, number in objective.vocabulary.specials.items() if name != "pad"}
    parts, text = [], []
    for token in [*ids.tolist(), None]:
        if token is not None and token not in names and token != source.specials["pad"]:
            text.append(token)
            continue
        parts.append(source.decode(np.array(text)) if text else "")
        text = []
        parts.append(names.get(token, "") if token is not None else "")
    return " ".join("".join(parts).split())


FRAMED = {
    "encoder class": "CLS one two three SEP | CLS four SEP",
    "encoder pair": "CLS one two three SEP four five SEP | CLS six SEP one SEP",
    "encoder either": "CLS one two SEP four SEP | CLS six SEP one SEP",
    "encoder options": "CLS one SEP two SEP CLS one SEP three four SEP CLS one SEP six SEP | "
    "CLS six SEP one SEP CLS six SEP two SEP",
    "decoder class": "START one two three EXTRACT | START four EXTRACT",
    "decoder pair": "START one two three DELIM four five EXTRACT | START six DELIM one EXTRACT",
    "decoder either": "START one two DELIM four EXTRACT START four DELIM one two EXTRACT | "
    "START six DELIM one EXTRACT START one DELIM six EXTRACT",
    "decoder options": "START one DELIM two EXTRACT START one DELIM three four EXTRACT START one DELIM six EXTRACT | "
    "START six DELIM one EXTRACT START six DELIM two EXTRACT",
}


@pytest.mark.parametrize("name", FRAMED)
def test_examples_are_framed_as_the_papers_print_them(name, opened):
    (family, kind), expected = name.split(), FRAMED[name].split(" | ")
    source = opened(kind)
    objective = answer(source, family)
    batch = in_order(source, objective)
    assert [words(source, objective, row) for row in batch.tokens] == expected
    mark = objective.vocabulary["cls" if family == "encoder" else "extract"]
    for row in range(2):
        places = batch.reads[row]
        assert (places >= 0).sum() == expected[row].count("CLS" if family == "encoder" else "EXTRACT")
        assert (batch.tokens[row, places[places >= 0]] == mark).all()
        real = batch.documents[row] > 0
        assert (real == (batch.tokens[row] != source.specials["pad"])).all()
        assert family == "encoder" or places.max() == int(real.sum()) - 1
    bears = (batch.targets != IGNORE).nonzero().T
    assert (len(bears[0]) > 0) == (family == "decoder")  # GPT's loss of the next tokens of each text
    assert (batch.targets[tuple(bears)] == batch.tokens[bears[0], bears[1] + 1]).all()
    assert (batch.documents[tuple(bears)] == batch.documents[bears[0], bears[1] + 1]).all()
    if name == "encoder pair":  # sentence B has its own segment
        assert batch.segments[0].tolist() == [0] * 5 + [1] * (batch.segments.shape[1] - 5)


def test_labels_are_of_the_shape_that_heads_learn(opened):
    expected = {"class": [1, 0], "either": [1.5, 3], "classes": [[1, 1], [0, 0]], "options": [1, 0]}
    for kind, labels in expected.items():
        source = opened(kind)
        assert in_order(source, answer(source, "encoder")).labels.tolist() == labels


@pytest.mark.parametrize(("family", "side"), [("encoder", 0), ("decoder", 1)])
def test_a_word_is_tagged_at_its_first_piece_and_by_decoders_at_its_last(family, side, opened):
    source = opened("tags", tokenizer={"kind": "Byte"})
    batch = in_order(source, answer(source, family))
    text = "Anna unfathomable x"
    tagged = (batch.labels[0] != IGNORE).nonzero()[:, 0].tolist()
    first = [text.index(word) for word in text.split()]
    last = [start + len(word) - 1 for start, word in zip(first, text.split())]
    assert tagged == [1 + at for at in (first, last)[side]]
    assert batch.labels[0][tagged].tolist() == [0, 1, 0]


@pytest.mark.parametrize("family", ["encoder", "decoder"])
def test_a_long_document_is_read_in_windows(family, opened):
    source = opened("span")
    objective = answer(source, family, length=20, stride=5)
    batch = in_order(source, objective)
    last = len(batch.tokens) - 1
    assert batch.examples.tolist() == [0] * last + [1]
    assert batch.starts.tolist() == [*range(0, 5 * last, 5), 0]
    answered = 0
    for row in range(last + 1):
        begin, end = batch.labels[row].tolist()
        if begin == end == batch.reads[row, 0]:
            assert row == last or "carl saw" not in words(source, objective, batch.tokens[row])
            continue
        answered += 1
        assert source.decode(batch.tokens[row, begin : end + 1].numpy()) == "carl saw"
    assert answered > 1
    seen = {int(batch.starts[row]) + at for row in range(last) for at in range(20 - 3 - 4)}
    assert seen >= set(range(len(source.items[0].parts[1])))
    assert [starts(10, 10, 4), starts(11, 10, 4), starts(30, 10, 20)] == [[0], [0, 4], [0, 10, 20]]


def test_the_longer_text_is_cut_first():
    def by_one(first: int, second: int, room: int) -> tuple[int, int]:
        while first + second > room:
            first, second = (first - 1, second) if first > second else (first, second - 1)
        return first, second

    for first, second, room in itertools.product(range(9), range(9), range(2, 12)):
        parts = cut([np.zeros(first), np.zeros(second)], room)
        assert tuple(map(len, parts)) == by_one(first, second, room)


@pytest.mark.parametrize(
    ("kind", "source", "target"),
    [
        ("class", "one two three EOS", "yes EOS"),
        ("either", "one two four EOS", "1. 6 EOS"),
        ("classes", "one two EOS", "no, yes EOS"),
        ("options", "one two three four six EOS", "three four EOS"),
        ("tags", "anna unfathomable x EOS", "no yes no EOS"),
        ("text", "one two EOS", "three EOS"),
    ],
)
def test_an_encoder_decoder_writes_the_label(kind, source, target, opened):
    task = opened(kind)
    objective = answer(task, "encoder_decoder")
    batch = in_order(task, objective)
    assert words(task, objective, batch.source[0]) == source
    written = words(task, objective, batch.targets[0][batch.targets[0] != IGNORE])
    assert written.replace(" ", "") == target.replace(" ", "")


@pytest.mark.parametrize(("kind", "family"), CASES)
def test_a_batch_is_the_same_for_any_number_of_ranks_and_at_any_time(kind, family, opened):
    source = opened(kind)
    made = training(source, answer(source, family), BatchSize.of(2), seed=3)
    again = training(source, answer(source, family), BatchSize.of(2), seed=3)
    for step in (3, 0):
        parts = [again.batch(step, rank, 2) for rank in (0, 1)]
        for name, value in vars(made.batch(step)).items():
            if value is not None:
                assert torch.equal(torch.cat([getattr(part, name) for part in parts]), value), name


LONGER = {
    "text": {"a": "six", "label": ["one two three four five six nine"]},
    "options": {"a": "six", "b": ["one", "two", "three", "four", "five"], "label": 0},
}


@pytest.mark.parametrize(("kind", "family"), [("text", "encoder_decoder"), ("options", "encoder")])
def test_batches_do_not_depend_on_which_split_is_read_first(kind, family, opened, tmp_path):
    """The widths of answers and options are those of training and validation, and no reading changes an objective."""
    train, longer = tmp_path / f"{kind}.jsonl", tmp_path / "longer.jsonl"
    longer.write_text(json.dumps(LONGER[kind]) + "\n")
    files = {"train": str(train), "validation": str(longer)}
    source, held_out = (opened(kind, split, files=files, tokenizer="Byte") for split in ("train", "validation"))
    objective, fresh = (answer(source, family, 80) for _ in range(2))
    before = dict(vars(objective))
    batches(held_out, objective).batch(0)
    one, other = (batches(source, each).batch(0) for each in (objective, fresh))
    assert all(a is b is None or torch.equal(a, b) for a, b in zip(vars(one).values(), vars(other).values()))
    assert all(vars(objective)[key] is value for key, value in before.items())
    if kind == "options":
        assert one.reads.shape[1] == 5
    assert kind == "options" or objective.width(source.task) == 40 == objective.width(held_out.task)


@pytest.mark.parametrize("family", ["encoder", "decoder"])
@pytest.mark.parametrize("kind", [kind for kind in LINES if kind != "text"])
def test_logits_that_say_the_truth_predict_it(kind, family, opened):
    """For each row the logits of its own label; the metric of what is predicted is 1."""
    source = opened(kind)
    objective = answer(source, family, length=20 if kind == "span" else 32, stride=5)  # a document in windows
    batch = in_order(source, objective)
    assert batch.labels is not None
    one_hot = torch.nn.functional.one_hot(batch.labels.clamp(min=0).long())
    logits = {"classes": batch.labels * 2.0 - 1, "either": batch.labels}.get(kind, one_hot.float())
    if kind == "span":
        logits = torch.zeros(len(batch.tokens), 2, batch.tokens.shape[1])
        for row, side in itertools.product(range(len(batch.tokens)), (0, 1)):
            none = batch.labels[row, side] == batch.reads[row, 0]
            logits[row, side, batch.labels[row, side]] = 3.0 if none and int(batch.examples[row]) == 0 else 9.0
    found = objective.predictions([(logits, batch)], source)
    predictions = [found[index] for index in range(len(source.items))]
    assert kind != "span" or predictions == ["Carl saw", ""]
    assert next(iter(source.task.score(predictions, source.examples).values())) == pytest.approx(1)


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("class", " yes", 1),
        ("class", "maybe", None),
        ("classes", "no, yes", [0, 1]),
        ("classes", "none", []),
        ("classes", "perhaps", None),
        ("either", "1.6", 1.6),
        ("either", "much", None),
        ("options", "three four", 1),
        ("options", "four", None),
        ("tags", "no yes no", ["no", "yes", "no"]),
        ("tags", "no yes", None),
        ("span", "Anna", "Anna"),
        ("span", "unanswerable", ""),
        ("text", "three", "three"),
    ],
)
def test_what_a_model_writes_is_parsed_and_nothing_else_is_valid(kind, text, expected, opened):
    source = opened(kind)
    assert answer(source, "encoder_decoder").parsed(text, source, 0) == expected


def test_an_encoder_cannot_answer_in_text(opened):
    lines: list[tuple[str, dict[str, Any]]] = [("text", {}), ("class", {"form": "text"})]
    for kind, keys in lines:
        source = opened(kind)
        with pytest.raises(ScalingError, match="an encoder cannot write"):
            batches(source, answer(source, "encoder", **keys))
    source = opened("class")
    with pytest.raises(ScalingError, match="no head predicts"):
        batches(source, answer(source, "encoder_decoder", form="head"))
