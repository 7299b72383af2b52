"""What is read of each layout and of every shipped task, what is held out together, and what is trained on too."""

import gzip
import hashlib
import json
from unittest.mock import Mock

import datasets
import pandas
import pytest

from scaling.base.errors import ScalingError
from scaling.config.compose import load
from scaling.config.files import shipped
from scaling.config.schema import build
from scaling.data.batches import evaluation
from scaling.data.sets import Published
from scaling.data.source import Vocabulary
from scaling.data.task import task as task_module
from scaling.data.task.example import OUTSIDE, places
from scaling.data.task.layout import trees
from scaling.objectives.answer import Answer
from tests.command_line import refuses
from tests.data.conftest import hub_copy, jsonl
from tests.data.task.layouts import ENTAILED, LAYOUTS, LOCAL, PAIR, classes

TREES = "( (S (NP-SBJ (PRP It)) (VP (VBZ rains)\n  (NP (-NONE- *)))))\n(S (NP (NNS Dogs)) (VP (VBP bark)))\n"
TALK = [{"speaker": "ann", "text": "Hi."}, {"speaker": "bob", "text": "Hi!"}, {"speaker": "ann", "text": "Well?"}]
SENTENCE = [("1", "The", "DT", "2"), ("2", "law", "NN", "3"), ("3", "falls", "VB", "0"), ("4", "slowly", "RB", "3")]
COMMENT = "# one\n1-2\tThe law\t_\t_\t_\t_\t_\t_\t_\t_\n"
TEXT = {"answer": "text", "text": "{source}", "label": "{target}", "metric": "BLEU"}
TAGS = {"answer": "tags", "text": "{tokens}", "label": "{upos}", "metric": "TagAccuracy", "heads": "{heads}"}
LINES = {
    "trees": {**TEXT, "text": "{words}", "label": "{tree}", "target": "{sequence}", "metric": "BracketF1"},
    "dialogue": {**TEXT, "text": "{history}", "label": "{reply}"},
    "conllu": {**TAGS, "labels": ["DT", "NN", "VB", "RB"]},
    "table": {**TAGS, "labels": ["DT", "NN"]},
    "squad": TEXT,
}


def written(words):
    return "".join(f"{n}\t{form}\t_\t{tag}\t{tag}\t_\t{head}\tdep\t_\t_\n" for n, form, tag, head in words)


@pytest.fixture
def opened(tmp_path):
    def one(layout, content, name):
        (tmp_path / name).write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())
        files = dict.fromkeys(BOTH, str(tmp_path / name))
        return task("", layout=layout, **LINES[layout], files=files).open("train", tmp_path / "data")

    return one


def test_a_treebank_gives_words_sequences_and_whole_trees_and_a_dialogue_each_reply(opened, tmp_path):
    source = opened("trees", TREES, "wsj.mrg.gz")
    first, second = source.examples
    assert (first.texts, first.target) == (("It rains",), "(S (NP XX )NP (VP XX )VP )S")
    assert first.answer[-1] == "( (S (NP-SBJ (PRP It)) (VP (VBZ rains) (NP (-NONE- *)))))"
    assert second.texts == ("Dogs bark",)
    assert source.task.metric.score([first.target, "(S (NP XX )NP (VP XX"], [first.answer, second.answer])["f1"] == 1
    (tmp_path / "a.txt").write_text("The cat sits\nIt rains\n")  # a parser is asked about trees or about sentences
    for name, words in {"wsj.mrg.gz": ["It rains", "Dogs bark"], "a.txt": ["The cat sits", "It rains"]}.items():
        assert [row["words"] for _, row in trees().unanswered([tmp_path / name], None, "csv")] == words
    source = opened("dialogue", json.dumps({"turns": TALK}), "talk.jsonl")
    replies = [(one.texts[0], one.target) for one in source.examples]
    assert replies == [("<ann> Hi. <bob>", "Hi!"), ("<ann> Hi. <bob> Hi! <ann>", "Well?")]


def test_what_is_wrong_is_one_line_with_the_file_and_its_line(opened):
    circle, two = written([("1", "a", "X", "2"), ("2", "b", "X", "1")]), {"tokens": ["a", "b"], "upos": ["DT", "NN"]}
    for layout, content, name, message in (
        ("trees", TREES + "(S (NP (NNS Cats))\n", "wsj.mrg.gz", "wsj.mrg.gz:4: the tree that begins here does not"),
        ("dialogue", json.dumps({"turns": TALK[:1]}), "talk.jsonl", "talk.jsonl:1: it has 1 turn, so no reply"),
        ("conllu", COMMENT + written(SENTENCE[:2]), "a.conllu", "a.conllu:4: .*2 words, and the head is none of them"),
        ("conllu", circle, "a.conllu", "a.conllu:1: .*form a circle"),
        ("table", json.dumps({**two, "heads": [0, 1, 1]}), "a.jsonl", "a.jsonl, example 1: .*has 2 words and 3 heads"),
        ("squad", '{"data": [{}]}', "a.json", "a.json: it is not laid out as SQuAD's JSON: 'paragraphs'"),
    ):
        refuses(message, opened, layout, content, name)


def test_words_of_a_tree_have_their_places_in_every_token_of_a_batch(opened):
    content = f"{COMMENT}{written(SENTENCE)}\n\n# next\n{written([('1', 'Go', 'VB', '0')])}"
    source = opened("conllu", content, "a.conllu")
    first, second = source.examples
    assert (first.texts, first.heads) == (("The", "law", "falls", "slowly"), (2, 3, 0, 3))
    assert (first.answer, second.heads) == (["DT", "NN", "VB", "RB"], (0,))
    batch = evaluation(source, Answer(Vocabulary.of(source), 32, "encoder"), 2)[0].batch(0)
    row, text = batch.tree[batch.examples == 0][0].tolist(), "The law falls slowly"
    for number, character in enumerate(text):
        if character != " ":
            assert tuple(row[1 + number]) == places([2, 3, 0, 3])[text[:number].count(" ")], (number, character)
    assert tuple(row[0]) == tuple(row[len(text) + 1]) == OUTSIDE
    tree = places([2, 0, 2, 3, 0])  # the numbers of a tree say what is above what
    above = [{n for n, (_, first, last) in enumerate(tree, 1) if first <= begin < last} for _, begin, _ in tree]
    assert above == [{1, 2}, {2}, {2, 3}, {2, 3, 4}, {5}]


CLASS = {"answer": "class", "labels": ["no", "yes"], "text": "{text}", "metric": "Accuracy"}
SPAN = {"answer": "span", "text": "{question}", "second": "{context}", "label": "{answers}", "metric": "SQuAD"}
REPLY = {"answer": "text", "text": "{history}", "label": "{reply}", "metric": "BLEU", "layout": "dialogue"}
BOTH = ("train", "validation")


def task(file, **line):
    files = {"train": file}
    return build("data", {"kind": "Task", "files": files, "tokenizer": "Byte", "validation": 0.25, **line})


def examples(data, folder, split="train"):
    return data.open(split, folder / "data").examples


# Three examples in each of 40 units; the answers to a question share its label.
EACH = [(unit, number) for unit in range(40) for number in range(3)]
ANSWERS = [{"qid": u, "text": f"passage {u} answer {n}", "label": "yes" if u % 3 else "no"} for u, n in EACH]
WHERE = {"text": ["Ann"], "answer_start": [0]}
QUESTIONS = [{"context": f"Ann has {u} cats.", "question": f"question {n} of {u}", "answers": WHERE} for u, n in EACH]
ASKED = [{"question": f"question {n}", "answers": [{"text": "Ann", "answer_start": 0}]} for n in range(3)]
SQUAD = {"data": [{"paragraphs": [{"context": f"Ann has {u} cats.", "qas": ASKED} for u in range(40)]}]}
TALKS = [{"turns": [{"speaker": "ann", "text": f"{u} and {n}"} for n in range(4)]} for u in range(40)]
TOGETHER = {
    "a group": (ANSWERS, {**CLASS, "group": "{qid}"}, lambda one: one.group),
    "a context of SQuAD": ([SQUAD], {**SPAN, "layout": "squad"}, lambda one: one.texts[1]),
    "a context of a table": (QUESTIONS, SPAN, lambda one: one.texts[1]),
    "a dialogue": (TALKS, REPLY, lambda one: one.texts[0].partition(" and ")[0]),
}


@pytest.mark.parametrize("what", TOGETHER)
def test_examples_that_share_something_are_on_one_side(what, tmp_path):
    rows, line, shared = TOGETHER[what]
    data = task(jsonl(tmp_path / "rows.jsonl", rows), **line)
    train, validation = (examples(data, tmp_path, split) for split in BOTH)
    assert len(train) + len(validation) == 120
    assert 10 < len(validation) < 60
    assert not {*map(shared, train)} & {*map(shared, validation)}
    assert what == "a group" or {one.group for one in train} == {None}  # scores have no groups


def test_an_example_without_a_group_is_held_out_by_its_text_and_a_limit_keeps_the_same_ones(tmp_path):
    kept = []
    for rows in (ANSWERS, ANSWERS[::-1]):
        file = jsonl(tmp_path / "rows.jsonl", rows)
        limited = [task(file, **CLASS, limit=limit) for limit in (5, 20, None)]
        few, more, whole = ({one.texts for one in examples(data, tmp_path)} for data in limited)
        assert (len(few), len(more)) == (5, 20)
        assert few < more < whole
        held_out = {one.texts for one in examples(task(file, **CLASS, limit=5), tmp_path, "validation")}
        assert len(held_out) + len(whole) == 120
        kept.append((few, held_out))
    assert kept[0] == kept[1]
    for (text,) in held_out:
        hashed = hashlib.blake2b(text.encode() + b"\0", digest_size=8).digest()
        assert int.from_bytes(hashed, "big") < 0.25 * 2**64
    with pytest.raises(ScalingError, match=rf"limit=121: the training split has {len(whole)} examples"):
        examples(task(file, **CLASS, limit=121), tmp_path)


def test_a_damaged_task_is_prepared_again(tmp_path):
    data = task(jsonl(tmp_path / "rows.jsonl", ANSWERS), **CLASS)
    home = data.prepare(tmp_path / "data")
    content = {file.name: file.read_bytes() for file in home.iterdir() if file.name != "trusted.json"}
    for name in ("manifest.json", "train.npz", "train.jsonl"):
        half = len(content[name]) // 2
        (home / name).write_bytes(content[name][:half] + bytes([content[name][half] ^ 1]) + content[name][half + 1 :])
        if name == "train.jsonl":
            (home / name).unlink()
        assert data.prepare(tmp_path / "data") == home
        assert [each.name for each in home.parent.iterdir()] == [home.name]
        assert content == {file.name: file.read_bytes() for file in home.iterdir() if file.name != "trusted.json"}


ALSO = "1 example of the validation split is in the train split too"
GROUPS = [("a", "yes", 1), ("b", "no", 2)], [("c", "yes", 1), ("d", "yes", 1), ("e", "no", 2), ("f", "no", 3)]
SHARED = [("A cat", "yes"), ("a dog", "no")], [("a cat ", "yes"), ("a dog", "no"), ("a fox", "no")]
DIFFERING = [("a", "yes"), ("a", "no"), ("a", "no"), ("b", "yes"), ("c", "no")], [("c", "yes"), ("e", "no")]


def test_what_is_trained_on_too_is_counted(tmp_path, capsys):
    for rows, line, warnings in (
        (GROUPS, {"group": "{qid}"}, ["2 groups of the validation split are in the train split too; numbers"]),
        (SHARED, {}, [ALSO, f"{ALSO}, but for case or spaces at the ends"]),
        (DIFFERING, {}, [ALSO, "2 texts have labels that contradict one another, in 5 examples"]),
    ):
        task_module._warn.cache_clear()
        named = [[dict(zip(("text", "label", "qid"), row)) for row in own] for own in rows]
        files = {split: jsonl(tmp_path / f"{split}.jsonl", own) for split, own in zip(BOTH, named)}
        examples(task("", **{**CLASS, **line, "files": files}), tmp_path)
        found = capsys.readouterr().err.splitlines()
        assert len(found) == len(warnings)
        assert all(one.startswith(f"scaling: warning: {other}") for one, other in zip(found, warnings))


SYNTHETIC = {"which_language", "language_switch", "rank_tags", "list_ops", "copy", "recall"}
SPLITS = ("train", "validation", "test")
TASKS = sorted({file.stem for file in (shipped() / "task").glob("*.yaml")} - SYNTHETIC)


def line(name):
    return {**load("decoder", [f"data={name}"])["data"], "tokenizer": "Byte", "validation": 0.5}


def table(rows, special):
    plain = datasets.Dataset.from_list(rows).features
    return datasets.Dataset.from_list(rows, features=datasets.Features({**plain, **special}))


@pytest.mark.parametrize("name", TASKS)
def test_a_task_is_read_in_the_layout_of_its_set(name, tmp_path):
    """From a copy of its set, as the hub has it or `save_to_disk` writes it; from a file where it is on no hub."""
    rows, special, (texts, answer, target) = LAYOUTS[name]
    changed, home = {**line(name)}, tmp_path / "set"
    if name in LOCAL:
        changed |= {"layout": "table", "files": {"train": jsonl(tmp_path / "rows.jsonl", rows)}}
    else:
        changed["hub"] = hub = {**changed["hub"], "path": str(home)}
        sets = {}
        for asked in (hub[split] for split in SPLITS if hub.get(split) is not None):
            own = {"config": hub.get("config"), **({"split": asked} if isinstance(asked, str) else asked)}
            of_set = classes(PAIR, ENTAILED, 1)[:2] if own["config"] == "axb" else (rows, special)
            sets.setdefault(own["config"], {})[own["split"]] = table(*of_set)
        if name == "squad2":
            datasets.DatasetDict(*sets.values()).save_to_disk(home)
        else:
            hub_copy(home, sets)
    data = build("data", changed)
    sources = [data.open(split, tmp_path / "data") for split in BOTH]
    examples = {one.texts: (source, number) for source in sources for number, one in enumerate(source.examples)}
    source, number = examples[texts]
    assert (source.examples[number].answer, source.examples[number].target) == (answer, target)
    assert source.decode(source.items[number].target) == target
    assert name != "snli" or len(examples) == 15  # a class below 0 is kept secret
    perfect = answers = [one.answer for one in source.examples]
    if source.task.scores_texts or source.task.answer in ("span", "text"):
        perfect = [(answer or [""])[0] for answer in answers]
    score = source.task.metric.score(perfect, answers)
    assert next(iter(score.values())) == pytest.approx(100 if source.task.metric.main == "bleu" else 1)
    if name == "axb":
        assert data.open("test", tmp_path / "data").examples[0].texts == ("It rains. (0)", "It is wet. (0)")


def test_what_was_prepared_of_the_hub_is_opened_without_it(tmp_path, monkeypatch):
    data, hub = build("data", line("cola")), Mock(return_value=table(*LAYOUTS["cola"][:2]))
    refuses(r"has not been prepared.*scaling data prepare", data.open, "train", tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(Published, "commit", "c" * 40)
        patched.setattr(datasets, "load_dataset", hub)
        home = data.prepare(tmp_path)
    assert [call.kwargs["revision"] for call in hub.call_args_list] == ["c" * 40] * 3
    assert [build("data", line("cola")).open(split, tmp_path).folder for split in SPLITS] == [home] * 3
    refuses("has not been prepared", build("data", {**line("cola"), "text": "a {sentence}"}).open, "train", tmp_path)


def test_a_published_file_without_a_header_is_read(tmp_path):
    (tmp_path / "train.tsv").write_text('gj04\t1\t\tShe said "no.\ngj04\t0\t*\tHe go.\n')
    files = dict.fromkeys(BOTH, str(tmp_path / "train.tsv"))
    first = build("data", {**line("cola"), "files": files}).open("train", tmp_path / "data").examples[0]
    assert (first.texts, first.answer) == (('She said "no.',), 1)


COLA = [{"sentence": text, "label": label} for text, label in (("a", "0"), ("b", "1"), ("c", "2"), ("d", None))]
ANSWERED = [{"text": ["Bob"], "answer_start": [7]}, {"text": [], "answer_start": []}]
SPANS = [{"question": "q", "context": "Ann met Bob", "answers": answers} for answers in ANSWERED]


def test_what_is_refused_and_a_test_split_needs_no_labels(tmp_path):
    def opened(name, split, **rows):
        files = {one: jsonl(tmp_path / f"{one}.jsonl", own) for one, own in rows.items()}
        return build("data", {**line(name), "files": files, "layout": "table"}).open(split, tmp_path / "data")

    assert [one.answer for one in opened("cola", "test", train=COLA[:2], test=COLA[::3]).examples] == [0, None]
    for name, good, split, bad, message in (
        ("cola", COLA[:2], "test", COLA[1:3], r"label: test split, test.jsonl, example 2: .* no such label '2'"),
        ("cola", COLA[:2], "train", COLA[::3], "train split, train.jsonl, example 2: it has no label"),
        ("squad1", SPANS, "train", SPANS, "example 1: the span 'Bob' is not in its"),
        ("squad1", SPANS, "train", SPANS[1:], "it has no answer .*; set data.none=allowed"),
    ):
        refuses(message, opened, name, "train", **{**dict.fromkeys(SPLITS, good), split: bad})


def test_a_label_is_read_as_the_file_means_it(tmp_path):
    """-1 may be a label, a number a text is not the number of an option, and a field of another type is one line."""

    def first(row, **line):
        files = dict.fromkeys(BOTH, jsonl(tmp_path / "rows.jsonl", [row]))
        return examples(task("", **{"text": "{text}", **line, "files": files}), tmp_path)[0]

    signs = {**CLASS, "labels": {"-1": "bad", "0": "so", "1": "good"}}
    sums = {"answer": "text", "metric": "ExactMatch"}
    assert first({"text": "x", "label": "-1"}, **signs).answer == 0
    assert first({"text": "2 - 3", "label": "-1"}, **sums).target == "-1"
    options = {"answer": "options", "metric": "Accuracy", "options": ["{a}", "{b}", "{c}", "{d}"]}
    choices = {"text": "x", "a": "12", "b": "3", "c": "7", "d": "1"}
    assert [first({**choices, "label": label}, **options).right for label in (3, "3", "12")] == [3, 1, 0]
    spans = {**SPAN, "text": "{text}", "second": "{text}", "label": "{label}"}
    for row, line, message in (
        ({**choices, "b": None, "label": 0}, options, "options: .*one of them is empty"),
        ({**choices, "label": 4}, options, "4 options, counted from 0, have no 4"),
        ({"text": "Ann", "label": {"text": "Ann", "answer_start": 0}}, spans, "a span is"),
        ({"text": "Ann", "label": {"text": ["Ann"], "answer_start": [-3]}}, spans, "a span is"),
        ({"text": "x", "label": 1e39}, {"answer": "number", "metric": "Correlation"}, "this is not a number"),
        ({"text": 5, "label": ["a"]}, {"answer": "tags", "labels": ["a", "b"], "metric": "TagAccuracy"}, "neither a"),
    ):
        refuses(message, first, row, **line)


def test_a_file_as_a_task_has_the_labels_that_are_found_in_it_again(tmp_path):
    pandas.DataFrame({"text": ["a", "b", "c"], "label": [0.0, 1.0, None]}).to_parquet(tmp_path / "one.parquet")
    (tmp_path / "two.csv").write_text('text,label\na,"x, y"\nb,y\n')
    line, _ = task_module.task_of_file(str(tmp_path / "*.parquet"), [])
    assert line["labels"] == ["0", "1"]
    assert task_module.task_of_file(str(tmp_path / "two.csv"), ["answer=classes"])[0]["labels"] == ["x", "y"]
