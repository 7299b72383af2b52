"""Corpora of pairs: two files side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from scaling.base.errors import ScalingError
from scaling.config.schema import build


def parallel(folder: Path, source: bytes, target: bytes):
    (folder / "a.de").write_bytes(source)
    (folder / "b.en").write_bytes(target)
    line = {"kind": "Parallel", "source": str(folder / "a.de"), "target": str(folder / "b.en")}
    return list(build("corpus", line).snapshot(folder).documents())


def test_lines_of_two_files_are_pairs(tmp_path):
    documents = parallel(tmp_path, "eins\nzwei\u2028drei\n".encode(), b"one\r\ntwo three\r\n")
    assert [(d.source, d.text) for d in documents] == [("eins", "one"), ("zwei\u2028drei", "two three")]


@pytest.mark.parametrize(
    ("source", "target", "stated"),
    [
        (b"1\n2\n3\n", b"1\n2\n3\n4\n5\n", "a.de:4: it has 3 lines, and b.en has 5: line 4 there has no partner"),
        (b"1\n2\n", b"1\n", "b.en:2: it has 1 line, and a.de has 2: line 2 there has no partner"),
        (b"1\n \n3\n", b"1\n2\n3\n", "a.de:2: the line is empty, so the pair has one side"),
        (b"1\n2\n", b"1\n\n", "b.en:2: the line is empty"),
        ("1\nä\n".encode("latin-1"), b"1\n2\n", "a.de:2: byte 0 of the line is 0xe4, which is not UTF-8"),
    ],
    ids=["more targets", "more sources", "empty source", "empty target", "latin-1"],
)
def test_bad_pairs_are_one_line_with_the_file_and_its_line(tmp_path, source, target, stated):
    with pytest.raises(ScalingError) as error:
        parallel(tmp_path, source, target)
    assert stated in str(error.value)
    assert "\n" not in str(error.value)


def test_a_parallel_split_is_two_files(tmp_path):
    (tmp_path / "train.tsv").write_text("a\tb\n")
    line = {"kind": "Task", "answer": "text", "text": "{source}", "label": "{target}", "metric": "BLEU"}
    line |= {"layout": "parallel", "files": {"train": str(tmp_path / "train.tsv")}, "tokenizer": {"kind": "Byte"}}
    with pytest.raises(ScalingError, match="a parallel split is in two files, and it names 1"):
        build("data", line).open("train", tmp_path)
