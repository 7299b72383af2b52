"""How the examples of a task are framed for each family, by hand; and predictions of logits that say the truth."""

import itertools
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from scaling.base.batch import IGNORE
from scaling.config.schema import build
from scaling.data.batches import evaluation, training
from scaling.data.plan import BatchSize
from scaling.data.source import Vocabulary
from scaling.data.task.example import cut
from tests.command_line import refuses

LABELS = {"labels": ["no", "yes"], "metric": "Accuracy"}
LINES: dict[str, dict[str, Any]] = {
    "class": LABELS,
    "pair": {"answer": "class", "second": "{b}", **LABELS},
    "either": {"answer": "number", "second": "{b}", "order": "either", "metric": "Correlation"},
    "classes": LABELS,
    "options": {"options": ["{b}"], "metric": "Accuracy"},
    "tags": {**LABELS, "metric": "TagAccuracy"},
    "span": {"second": "{b}", "none": "allowed", "metric": "SQuAD2"},
    "text": {"metric": "ExactMatch"},
}
CONTEXT = "Anna met Bob in Rome on a cold day, and Carl saw both of them there at the old bridge by the river"
CARL = {"text": ["Carl saw"], "answer_start": [CONTEXT.index("Carl")]}
ROWS: dict[str, list[tuple[Any, Any, Any]]] = {  # a, b and label
    "class": [("one two three", "", "yes"), ("four", "", "no")],
    "pair": [("one two three", "four five", "yes"), ("six", "one", "no")],
    "either": [("one two", "four", 1.5), ("six", "one", 3)],
    "classes": [("one two", "", ["no", "yes"]), ("six", "", [])],
    "options": [("one", ["two", "three four", "six"], 1), ("six", ["one", "two"], 0)],
    "tags": [(["Anna", "unfathomable", "x"], "", ["no", "yes", "no"]), (["six"], "", ["yes"])],
    "span": [("who met Bob?", CONTEXT, CARL), ("why?", "No one knows", {"text": [], "answer_start": []})],
    "text": [("one two", "", ["three", "four"]), ("six", "", ["one"])],
}
FAMILIES = ("encoder", "decoder", "encoder_decoder")


@pytest.fixture
def opened(tmp_path):
    def one(kind, split="train", **changes):
        file = tmp_path / f"{kind}.jsonl"
        file.write_text("".join(json.dumps(dict(zip(("a", "b", "label"), row))) + "\n" for row in ROWS[kind]))
        files = dict.fromkeys(("train", "validation"), str(file))
        tokenizer = {"kind": "WordPiece", "vocabulary": 200, "alphabet": 60}
        line = {"kind": "Task", "answer": kind, "text": "{a}", "files": files, "tokenizer": tokenizer}
        return build("data", {**line, **LINES[kind], **changes}).open(split, tmp_path / "data")

    return one


def answer(source, family, length=40, **keys):
    return build("objective", {"kind": "Answer", **keys}, Vocabulary.of(source), length, family)


def batches(source, objective):
    return evaluation(source, objective, len(source.items) + 5)[0]


def in_order(source, objective):
    """All rows of the split, those of each example together."""
    every = batches(source, objective).features
    rows, read = np.arange(len(every.examples)), source.read(every.examples, 0)
    return objective(replace(read, starts=every.starts, width=int(every.lengths.max())), rows.astype(np.uint64))


def words(source, objective, ids):
    """Ids as text, specials in capitals, filling left out."""
    names, parts = {number: name.upper() for name, number in objective.vocabulary.specials.items()}, []
    for name, run in itertools.groupby(ids.tolist(), key=names.get):
        tokens = list(run)
        parts += [source.decode(np.array(tokens))] if name is None else [name] * len(tokens) * (name != "PAD")
    return " ".join(" ".join(parts).split())


FRAMED = {
    "encoder class": "CLS one two three SEP | CLS four SEP",
    "encoder pair": "CLS one two three SEP four five SEP | CLS six SEP one SEP",
    "encoder options": "CLS one SEP two SEP CLS one SEP three four SEP CLS one SEP six SEP"
    " | CLS six SEP one SEP CLS six SEP two SEP",
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
    assert batch.labels.tolist() == ([1.5, 3] if kind == "either" else [1, 0])
    mark = "cls" if family == "encoder" else "extract"
    assert ((batch.documents > 0) == (batch.tokens != source.specials["pad"])).all()
    for row, places in enumerate(batch.reads):
        assert (places >= 0).sum() == expected[row].count(mark.upper())
        assert (batch.tokens[row, places[places >= 0]] == objective.vocabulary[mark]).all()
    bears = (batch.targets != IGNORE).nonzero().T
    assert (len(bears[0]) > 0) == (family == "decoder")  # GPT's loss of the next tokens of each text
    assert (batch.targets[tuple(bears)] == batch.tokens[bears[0], bears[1] + 1]).all()
    assert (batch.documents[tuple(bears)] == batch.documents[bears[0], bears[1] + 1]).all()
    if name == "encoder pair":  # sentence B has its own segment
        assert batch.segments[0].tolist() == [0] * 5 + [1] * (batch.segments.shape[1] - 5)


@pytest.mark.parametrize(("family", "side"), [("encoder", 0), ("decoder", 1)])
def test_a_word_is_tagged_at_its_first_piece_and_by_decoders_at_its_last(family, side, opened):
    source = opened("tags", tokenizer={"kind": "Byte"})
    labels = in_order(source, answer(source, family)).labels[0]
    tagged = (labels != IGNORE).nonzero()[:, 0].tolist()
    assert tagged == [[1, 6, 19], [4, 17, 19]][side]  # of "<cls>Anna unfathomable x"
    assert labels[tagged].tolist() == [0, 1, 0]


@pytest.mark.parametrize("family", ["encoder", "decoder"])
def test_a_long_document_is_read_in_windows(family, opened):
    source = opened("span")
    for length in range(18, 23):  # an answer ends at the end of some window
        objective = answer(source, family, length=length, stride=5)
        batch = in_order(source, objective)
        last = len(batch.tokens) - 1
        assert batch.examples.tolist() == [0] * last + [1]
        assert batch.starts.tolist() == [*range(0, 5 * last, 5), 0]
        assert 5 * (last - 1) + length - 3 - 4 >= len(source.items[0].parts[1])
        answered = 0
        for row, (begin, end) in enumerate(batch.labels.tolist()):
            if begin == end == batch.reads[row, 0]:
                assert row == last or "carl saw" not in words(source, objective, batch.tokens[row])
            else:
                answered += 1
                assert source.decode(batch.tokens[row, begin : end + 1].numpy()) == "carl saw"
        assert answered > 1


def test_the_longer_text_is_cut_first():
    for lengths in itertools.product(range(9), range(9), range(2, 12)):
        first, second, room = lengths
        parts = cut([np.zeros(first), np.zeros(second)], room)
        while first + second > room:  # one by one
            first, second = (first - 1, second) if first > second else (first, second - 1)
        assert tuple(map(len, parts)) == (first, second)


WRITTEN: dict[str, tuple[str, str, dict[str, Any]]] = {  # what is read and written first, and texts as they are parsed
    "class": ("one two three EOS", "yesEOS", {" yes": 1, "maybe": None}),
    "either": ("one two four EOS", "1.6EOS", {"1.6": 1.6, "much": None, "nan": None}),
    "classes": ("one two EOS", "no,yesEOS", {"no, yes": [0, 1], "none": [], "perhaps": None}),
    "options": ("one two three four six EOS", "threefourEOS", {"three four": 1, "four": None}),
    "tags": ("anna unfathomable x EOS", "noyesnoEOS", {"no yes no": ["no", "yes", "no"], "no yes": None}),
    "span": ("", "", {"Anna": "Anna", "unanswerable": ""}),
    "text": ("one two EOS", "threeEOS", {"three": "three"}),
}


@pytest.mark.parametrize("kind", WRITTEN)
def test_an_encoder_decoder_writes_the_label_and_nothing_else_is_valid(kind, opened):
    task, (source, target, parsed) = opened(kind), WRITTEN[kind]
    objective = answer(task, "encoder_decoder")
    batch = in_order(task, objective)
    written = words(task, objective, batch.targets[0][batch.targets[0] != IGNORE]).replace(" ", "")
    assert kind == "span" or (words(task, objective, batch.source[0]), written) == (source, target)
    assert {text: task.task.of_text(text.strip(), task.examples[0]) for text in parsed} == parsed


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", LINES)
def test_batches_are_the_same_for_any_number_of_ranks_and_at_any_time_and_true_logits_predict(kind, family, opened):
    source = opened(kind)
    if (kind, family) == ("text", "encoder"):
        refuses("an encoder cannot write", batches, source, answer(source, family))
        return
    made, again = (training(source, answer(source, family), BatchSize.of(2), seed=3) for _ in range(2))
    for step in (3, 0):
        parts = [again.batch(step, rank, 2) for rank in (0, 1)]
        for name, value in vars(made.batch(step)).items():
            assert value is None or torch.equal(torch.cat([getattr(part, name) for part in parts]), value), name
    if kind == "text" or family == "encoder_decoder":
        return
    objective = answer(source, family, length=20 if kind == "span" else 32, stride=5)  # a document in windows
    batch = in_order(source, objective)
    one_hot = torch.nn.functional.one_hot(batch.labels.clamp(min=0).long())
    logits = {"classes": batch.labels * 2.0 - 1, "either": batch.labels}.get(kind, one_hot.float())
    if kind == "span":
        logits = torch.zeros(len(batch.tokens), 2, batch.tokens.shape[1])
        for row, side in itertools.product(range(len(batch.tokens)), (0, 1)):
            none = batch.labels[row, side] == batch.reads[row, 0]
            logits[row, side, batch.labels[row, side]] = 12.0 if none and int(batch.examples[row]) == 0 else 9.0
    found = objective.predictions([(logits, batch)], source)
    predictions = [found[index] for index in range(len(source.items))]
    assert kind != "span" or predictions == ["Carl saw", ""]
    score = source.task.metric.score(predictions, [example.answer for example in source.examples])
    assert next(iter(score.values())) == pytest.approx(1)


@pytest.mark.parametrize(("kind", "family"), [("text", "encoder_decoder"), ("options", "encoder")])
def test_batches_do_not_depend_on_which_split_is_read_first(kind, family, opened, tmp_path):
    """The widths of answers and options are those of training and validation, and no reading changes an objective."""
    label = {"text": ["one two three four five six nine"], "options": 0}[kind]
    (tmp_path / "longer.jsonl").write_text(json.dumps({"a": "six", "b": [*"abcde"], "label": label}))
    files = {"train": str(tmp_path / f"{kind}.jsonl"), "validation": str(tmp_path / "longer.jsonl")}
    source, held_out = (opened(kind, split, files=files, tokenizer="Byte") for split in ("train", "validation"))
    objective, fresh = (answer(source, family, 80) for _ in range(2))
    batches(held_out, objective).batch(0)
    one, other = (batches(source, each).batch(0) for each in (objective, fresh))
    assert torch.equal(one.tokens, other.tokens)
    assert one.reads.shape[1] == 5 if kind == "options" else one.tokens.shape[1] == 40
