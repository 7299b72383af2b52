"""Layouts of files are the kinds of a slot: a class of one's own joins it, and no run id names them."""

from __future__ import annotations

from pathlib import Path

from scaling.config import schema
from scaling.data.task.layout import trees

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


def task(file: Path, layout: object):
    line = {"kind": "Task", "answer": "class", "labels": ["yes", "no"], "text": "{text}", "metric": "Accuracy"}
    files = {"train": str(file), "test": str(file)}
    return schema.build("data", {**line, "files": files, "layout": layout, "tokenizer": "Byte", "validation": 0.5})


def test_a_layout_of_ones_own_is_read_by_its_keys(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    schema.extend(tmp_path / "own.py")
    (tmp_path / "a.stars").write_text(
        "".join(f"+ line {number} = {'yes' if number % 2 else 'no'}\n" for number in range(9))
    )
    examples = task(tmp_path / "a.stars", {"kind": "starred", "mark": "+"}).open("test", tmp_path).examples
    assert [(example.texts, example.answer) for example in examples[:2]] == [(("line 0",), 1), (("line 1",), 0)]


def test_a_parser_is_asked_about_trees_or_about_sentences(tmp_path):
    layout = trees()
    (tmp_path / "a.mrg").write_text("\n( (S (NP (DT The) (NN cat)) (VP (VBZ sits))))\n")
    (tmp_path / "a.txt").write_text("The cat sits\nIt rains\n")
    of_trees = [row["words"] for _, row in layout.unanswered([tmp_path / "a.mrg"], None, "csv")]
    assert of_trees == ["The cat sits"]
    of_text = [row for _, row in layout.unanswered([tmp_path / "a.txt"], None, "csv")]
    assert of_text == [{"words": "The cat sits"}, {"words": "It rains"}]
