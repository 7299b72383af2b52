"""What is read of files in each layout, what of it is held out together, and what is counted as trained on too."""

import gzip
import hashlib
import json

import pytest

from scaling.base.errors import ScalingError
from scaling.config import schema
from scaling.config.schema import build
from scaling.data.batches import evaluation
from scaling.data.source import Vocabulary
from scaling.data.task import task as task_module
from scaling.data.task.example import OUTSIDE, places
from scaling.data.task.layout import trees
from scaling.objectives.answer import Answer

TREES = "( (S (NP-SBJ (PRP It)) (VP (VBZ rains)\n  (NP (-NONE- *)))))\n(S (NP (NNS Dogs)) (VP (VBP bark)))\n"
TALK = [{"speaker": "ann", "text": "Hi."}, {"speaker": "bob", "text": "Hi!"}, {"speaker": "ann", "text": "Well?"}]
DIALOGUES = [{"turns": TALK}, {"turns": [{"speaker": "bob", "text": "Rain."}, {"speaker": "ann", "text": "Yes."}]}]
SENTENCE = [("1", "The", "DT", "2"), ("2", "law", "NN", "3"), ("3", "falls", "VB", "0"), ("4", "slowly", "RB", "3")]
COMMENT = "# one\n1-2\tThe law\t_\t_\t_\t_\t_\t_\t_\t_\n"
TEXT = {"answer": "text", "text": "{source}", "label": "{target}", "metric": "BLEU"}
TAGS = {"answer": "tags", "text": "{tokens}", "label": "{upos}", "metric": "TagAccuracy", "heads": "{heads}"}
LINES = {
    "trees": {**TEXT, "text": "{words}", "label": "{tree}", "target": "{sequence}", "metric": "BracketF1"},
    "dialogue": {**TEXT, "text": "{history}", "label": "{reply}"},
    "conllu": {**TAGS, "labels": ["DT", "NN", "VB", "RB"]},
    "table": {**TAGS, "labels": ["DT", "NN"]},
    "parallel": TEXT,
    "squad": TEXT,
    "starred": {"answer": "class", "labels": ["yes", "no"], "text": "{text}", "metric": "Accuracy"},
}


def written(words):
    return "".join(f"{n}\t{form}\t_\t{tag}\t{tag}\t_\t{head}\tdep\t_\t_\n" for n, form, tag, head in words)


@pytest.fixture
def opened(tmp_path):
    def one(layout, content, name, **keys):
        (tmp_path / name).write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())
        files = dict.fromkeys(("train", "validation"), str(tmp_path / name))
        line = {"kind": "Task", "tokenizer": "Byte", "layout": {"kind": layout, **keys}, "files": files}
        return build("data", {**line, **LINES[layout]}).open("train", tmp_path / "data")

    return one


def test_a_treebank_gives_words_sequences_and_whole_trees(opened, tmp_path):
    source = opened("trees", TREES, "wsj.mrg.gz")
    first, second = source.examples
    assert (first.texts, first.target) == (("It rains",), "(S (NP XX )NP (VP XX )VP )S")
    assert first.answer[-1] == "( (S (NP-SBJ (PRP It)) (VP (VBZ rains) (NP (-NONE- *)))))"
    assert second.texts == ("Dogs bark",)
    assert source.task.score([first.target, "(S (NP XX )NP (VP XX"], source.examples)["f1"] == 1
    (tmp_path / "a.txt").write_text("The cat sits\nIt rains\n")  # a parser is asked about trees or about sentences
    for name, words in {"wsj.mrg.gz": ["It rains", "Dogs bark"], "a.txt": ["The cat sits", "It rains"]}.items():
        assert [row["words"] for _, row in trees().unanswered([tmp_path / name], None, "csv")] == words


def test_each_reply_is_an_example_with_all_turns_before_it(opened):
    source = opened("dialogue", "".join(f"{json.dumps(line)}\n" for line in DIALOGUES), "talk.jsonl")
    assert [(one.texts[0], one.target) for one in source.examples] == [
        ("<ann> Hi. <bob>", "Hi!"),
        ("<ann> Hi. <bob> Hi! <ann>", "Well?"),
        ("<bob> Rain. <ann>", "Yes."),
    ]


def test_what_is_wrong_is_one_line_with_the_file_and_its_line(opened):
    circle, two = written([("1", "a", "X", "2"), ("2", "b", "X", "1")]), {"tokens": ["a", "b"], "upos": ["DT", "NN"]}
    for layout, content, name, message in (
        ("trees", TREES + "(S (NP (NNS Cats))\n", "wsj.mrg.gz", "wsj.mrg.gz:4: the tree that begins here does not"),
        ("dialogue", json.dumps({"turns": TALK[:1]}), "talk.jsonl", "talk.jsonl:1: it has 1 turn, so no reply"),
        ("dialogue", '{"talk": []}', "talk.jsonl", "talk.jsonl:1: the line is no dialogue: 'turns'"),
        ("conllu", "# one\n" + written([SENTENCE[1]]), "a.conllu", "a.conllu:2: .*numbered from 1"),
        ("conllu", COMMENT + written(SENTENCE[:2]), "a.conllu", "a.conllu:4: .*2 words, and the head is none of them"),
        ("conllu", circle, "a.conllu", "a.conllu:1: .*form a circle"),
        ("conllu", "a DT\n", "a.conllu", "a.conllu:1: .*1 columns, and CoNLL-U has 10"),
        ("table", json.dumps({**two, "heads": [0, 1, 1]}), "a.jsonl", "a.jsonl, example 1: .*has 2 words and 3 heads"),
        ("parallel", "a\tb\n", "a.tsv", "a parallel split is in two files, and it names 1"),
        ("squad", '{"data": [{}]}', "a.json", "a.json: it is not laid out as SQuAD's JSON: 'paragraphs'"),
    ):
        with pytest.raises(ScalingError, match=message):
            opened(layout, content, name)


def test_words_of_a_tree_have_their_places_in_every_token_of_a_batch(opened):
    source = opened(
        "conllu", f"{COMMENT}{written(SENTENCE)}\n\n# next\n{written([('1', 'Go', 'VB', '0')])}", "a.conllu"
    )
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
    assert [depth for depth, _, _ in tree] == [2, 1, 2, 3, 1]
    for word, above in {1: {1, 2}, 2: {2}, 3: {2, 3}, 4: {2, 3, 4}, 5: {5}}.items():
        begin = tree[word - 1][1]
        assert {number for number, (_, first, last) in enumerate(tree, 1) if first <= begin < last} == above


OWN = """
from scaling.data.task.layout import Layout

class starred(Layout):
    slot = "layout"

    def __init__(self, *, mark: str = "*"):
        self.mark = mark

    def of_file(self, file, columns, quotes):
        for block in file.read_text().split(self.mark)[1:]:
            text, label = block.strip().split(" = ")
            yield {"text": text, "label": label}
"""


def test_a_layout_of_ones_own_is_read_by_its_keys(opened, tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    schema.extend(tmp_path / "own.py")
    examples = opened("starred", "+ line 0 = no\n+ line 1 = yes\n", "a.stars", mark="+").examples
    assert [(example.texts, example.answer) for example in examples] == [(("line 0",), 1), (("line 1",), 0)]


# --- what is held out ---

CLASS = {"answer": "class", "labels": ["no", "yes"], "text": "{text}", "metric": "Accuracy"}
SPAN = {"answer": "span", "text": "{question}", "second": "{context}", "label": "{answers}", "metric": "SQuAD"}
REPLY = {"answer": "text", "text": "{history}", "label": "{reply}", "metric": "BLEU", "layout": "dialogue"}
BOTH = ("train", "validation")


def task(file, **line):
    files = {"train": str(file)}
    return build("data", {"kind": "Task", "files": files, "tokenizer": "Byte", "validation": 0.25, **line})


def jsonl(file, rows):
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return file


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
    file, kept = tmp_path / "rows.jsonl", []
    for rows in (ANSWERS, ANSWERS[::-1]):
        jsonl(file, rows)
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


@pytest.mark.parametrize("name", ["manifest.json", "train.npz", "train.jsonl"])
def test_a_damaged_task_is_prepared_again(tmp_path, name):
    data = task(jsonl(tmp_path / "rows.jsonl", ANSWERS), **CLASS)
    home = data.prepare(tmp_path / "data")
    content = {file.name: file.read_bytes() for file in home.iterdir() if file.name != "trusted.json"}
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


@pytest.mark.parametrize(
    ("rows", "line", "told"),
    [
        (GROUPS, {"group": "{qid}"}, ["2 groups of the validation split are in the train split too; numbers"]),
        (SHARED, {}, [ALSO, f"{ALSO}, but for case or spaces at the ends"]),
        (DIFFERING, {}, [ALSO, "2 texts have labels that contradict one another, in 5 examples"]),
    ],
    ids=["groups", "case and spaces", "labels"],
)
def test_what_is_trained_on_too_is_counted(rows, line, told, tmp_path, capsys):
    task_module._warn.cache_clear()
    named = [[dict(zip(("text", "label", "qid"), row)) for row in own] for own in rows]
    files = {split: str(jsonl(tmp_path / f"{split}.jsonl", own)) for split, own in zip(BOTH, named)}
    examples(task(tmp_path, **{**CLASS, **line, "files": files}), tmp_path)
    found = [line.removeprefix("scaling: warning: ") for line in capsys.readouterr().err.splitlines()]
    assert len(found) == len(told)
    assert all(one.startswith(other) for one, other in zip(found, told))
