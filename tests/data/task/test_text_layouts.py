"""Layouts whose answers are written: treebanks and dialogues, as a decoder and an encoder-decoder learn from them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from scaling.base.errors import ScalingError
from scaling.config.schema import build

TREES = "( (S (NP-SBJ (PRP It)) (VP (VBZ rains)\n  (NP (-NONE- *)))))\n(S (NP (NNS Dogs)) (VP (VBP bark)))\n"
DIALOGUES = [
    [("ann", "Hello."), ("bob", "Hi!"), ("ann", "How are you?"), ("bob", "Fine.")],
    [("bob", "Rain again."), ("ann", "Yes.")],
]


def task(file: Path, **line: Any):
    plain = {"kind": "Task", "answer": "text", "tokenizer": {"kind": "Byte"}, "validation": 0.5}
    return build("data", {**plain, "files": {"train": str(file), "test": str(file)}, **line})


def treebank(folder: Path, text: str = TREES):
    file = folder / "wsj.mrg.gz"
    file.write_bytes(gzip.compress(text.encode()))
    columns = {"text": "{words}", "label": "{tree}", "target": "{sequence}"}
    return task(file, layout="trees", metric="BracketF1", **columns)


def dialogue(folder: Path, lines: list[Any] | None = None):
    file = folder / "talk.jsonl"
    lines = lines or [{"turns": [{"speaker": s, "text": t} for s, t in turns]} for turns in DIALOGUES]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    columns = {"text": "{history}", "label": "{reply}"}
    return task(file, layout="dialogue", metric="BLEU", validation=0.32, **columns)  # holds out the second dialogue


def test_a_treebank_gives_words_sequences_and_whole_trees(tmp_path):
    source = treebank(tmp_path).open("test", tmp_path)
    first, second = source.examples
    assert (first.texts, first.target) == (("It rains",), "(S (NP XX )NP (VP XX )VP )S")
    assert first.answer[-1] == "( (S (NP-SBJ (PRP It)) (VP (VBZ rains) (NP (-NONE- *)))))"
    assert second.texts == ("Dogs bark",)
    perfect = source.task.score([first.target, "(S (NP XX )NP (VP XX"], source.examples)
    assert perfect["f1"] == 1


def test_a_tree_that_does_not_close_is_one_line_with_the_file_and_its_line(tmp_path):
    with pytest.raises(ScalingError) as error:
        treebank(tmp_path, TREES + "(S (NP (NNS Cats))\n").open("test", tmp_path)
    assert "wsj.mrg.gz:4: the tree that begins here does not close: 1 of its brackets are open" in str(error.value)


def test_each_reply_is_an_example_with_all_turns_before_it(tmp_path):
    source = dialogue(tmp_path).open("test", tmp_path)
    assert [(one.texts[0], one.target) for one in source.examples] == [
        ("<ann> Hello. <bob>", "Hi!"),
        ("<ann> Hello. <bob> Hi! <ann>", "How are you?"),
        ("<ann> Hello. <bob> Hi! <ann> How are you? <bob>", "Fine."),
        ("<bob> Rain again. <ann>", "Yes."),
    ]


@pytest.mark.parametrize(
    ("line", "stated"),
    [
        ({"turns": [{"speaker": "ann", "text": "Hello."}]}, "talk.jsonl:1: it has 1 turn, so no reply"),
        ({"turns": [{"speaker": "ann"}]}, "talk.jsonl:1: the line is no dialogue: 'text'"),
        ({"talk": []}, "talk.jsonl:1: the line is no dialogue: 'turns'"),
    ],
)
def test_what_is_no_dialogue_is_one_line(line, stated, tmp_path):
    with pytest.raises(ScalingError) as error:
        dialogue(tmp_path, [line]).open("test", tmp_path)
    assert stated in str(error.value)
