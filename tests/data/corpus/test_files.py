"""Local files: what is in them comes out, whatever their format, and what cannot is told with its place."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import zstandard

from scaling.data.documents import Document
from scaling.errors import BAD_INPUT, ScalingError
from scaling.schema import build

Written = Callable[[Path, list[str]], None]


def text(file: Path, texts: list[str]) -> None:
    file.write_text("\n\n".join(texts))


def jsonl(file: Path, texts: list[str]) -> None:
    file.write_text("".join(json.dumps({"id": index, "text": text}) + "\n" for index, text in enumerate(texts)))


def parquet(file: Path, texts: list[str]) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"text": texts, "url": [""] * len(texts)}), file)


def zipped(write: Written, compress: Callable[[bytes], bytes]) -> Written:
    def written(file: Path, texts: list[str]) -> None:
        plain = file.with_suffix("")
        write(plain, texts)
        file.write_bytes(compress(plain.read_bytes()))
        plain.unlink()

    return written


FORMATS: dict[str, Written] = {
    "txt": text,
    "txt.gz": zipped(text, gzip.compress),
    "txt.zst": zipped(text, zstandard.compress),
    "jsonl": jsonl,
    "jsonl.gz": zipped(jsonl, gzip.compress),
    "jsonl.zst": zipped(jsonl, zstandard.compress),
    "parquet": parquet,
}


def documents(root: Path, **line: object) -> list[Document]:
    corpus = build("corpus", {"kind": "Files", **line})
    snapshot = corpus.snapshot(root)
    held = list(snapshot.documents())
    assert list(snapshot.documents()) == held
    return held


@pytest.mark.parametrize("ending", FORMATS)
def test_every_format_gives_the_same_documents(tmp_path: Path, ending: str) -> None:
    texts = [f"text {number} of wörds\nand a second line" for number in range(20)]
    FORMATS[ending](tmp_path / f"a.{ending}", texts[:10])
    FORMATS[ending](tmp_path / f"b.{ending}", texts[10:])
    assert [document.text for document in documents(tmp_path, files=str(tmp_path / f"*.{ending}"))] == texts


@pytest.mark.parametrize(
    ("unit", "expected"),
    [("line", ["one", "two", "", "three"]), ("paragraph", ["one\ntwo", "three"]), ("file", ["one\ntwo\n\nthree"])],
)
def test_plain_text_is_cut_as_asked(tmp_path: Path, unit: str, expected: list[str]) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n\nthree")
    assert [one.text for one in documents(tmp_path, files=str(tmp_path / "a.txt"), document=unit)] == expected


def test_rows_become_pairs_by_templates(tmp_path: Path) -> None:
    rows = [{"q": {"text": f"q{i}"}, "a": [f"a{i}", "b"] if i else []} for i in range(3)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    held = documents(tmp_path, files=str(tmp_path / "a.jsonl"), source="ask: {q.text}", text="{a.0}")
    assert held == [Document("a1", "ask: q1"), Document("a2", "ask: q2")]  # the first has no answer


def test_lists_globs_and_folders_within_folders(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    for name in ("a.txt", "deep/b.txt", "deep/er/c.txt"):
        (tmp_path / name).write_text(name)
    files = [str(tmp_path / "a.txt"), str(tmp_path / "**" / "*.txt")]
    held = [document.text for document in documents(tmp_path, files=files)]
    assert held == ["a.txt", "deep/b.txt", "deep/er/c.txt"]


def test_a_limit_takes_the_first_documents_and_leaves_the_held_out_ones(tmp_path: Path) -> None:
    for name in ("train", "held"):
        jsonl(tmp_path / f"{name}.jsonl", [f"{name} {number}" for number in range(10)])
    files = {"files": str(tmp_path / "train.jsonl"), "validation": str(tmp_path / "held.jsonl")}
    held = documents(tmp_path, **files, limit=20)
    assert [each.text for each in held if each.split == "train"] == ["train 0", "train 1", "train 2"]
    assert sum(each.split == "validation" for each in held) == 10


def test_names_with_brackets_are_names(tmp_path: Path) -> None:
    (tmp_path / "a[1].txt").write_text("here")
    assert [document.text for document in documents(tmp_path, files=str(tmp_path / "*.txt"))] == ["here"]


def test_translations_line_by_line(tmp_path: Path) -> None:
    (tmp_path / "en").write_text("one\ntwo\n")
    (tmp_path / "de").write_text("eins\nzwei\n")
    corpus = build("corpus", {"kind": "Parallel", "source": str(tmp_path / "en"), "target": str(tmp_path / "de")})
    assert list(corpus.snapshot(tmp_path).documents()) == [Document("eins", "one"), Document("zwei", "two")]
    (tmp_path / "de").write_text("eins\n")
    with pytest.raises(ScalingError, match="de:2: it has 1 line, and en has 2"):
        list(corpus.snapshot(tmp_path).documents())


# --- bad input ---


def refused(root: Path, **line: object) -> str:
    with pytest.raises(ScalingError) as caught:
        documents(root, **line)
    assert caught.value.code == BAD_INPUT
    return str(caught.value)


def test_a_missing_file(tmp_path: Path) -> None:
    assert "none.txt': there is no such file" in refused(tmp_path, files=str(tmp_path / "none.txt"))


@pytest.mark.parametrize(("before", "name"), [(10, "a.txt"), (3_000_001, "a.txt"), (1_048_575, "a.jsonl")])
def test_undecodable_bytes_with_file_and_offset(tmp_path: Path, before: int, name: str) -> None:
    file = tmp_path / name
    (tmp_path / f"0.{file.suffix}").write_text("")
    start = b'{"text": "' if file.suffix == ".jsonl" else b""
    file.write_bytes(start + b"x" * (before - len(start)) + b"\xff" + b"\n")
    line, place = (":1", " of the line") if file.suffix == ".jsonl" else ("", "")
    told = refused(tmp_path, files=str(file))
    assert told.startswith(f"{file}{line}: byte {before}{place} is 0xff, which is not UTF-8")


def test_an_offset_within_a_split_character(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(b"x" * ((1 << 20) - 1) + "é".encode()[:1] + b"y")  # the lone byte ends a chunk of the search
    assert f"byte {(1 << 20) - 1} is 0xc3" in refused(tmp_path, files=str(file))


def test_undecodable_bytes_under_compression(tmp_path: Path) -> None:
    file = tmp_path / "a.txt.gz"
    file.write_bytes(gzip.compress(b"good\n\nb\xe9d\n"))
    assert "byte 7 of the decompressed text is 0xe9" in refused(tmp_path, files=str(file))


def test_a_compressed_file_that_was_cut_short(tmp_path: Path) -> None:
    file = tmp_path / "a.txt.gz"
    file.write_bytes(gzip.compress(("some words in a row\n" * 1000).encode())[:-20])
    assert "a.txt.gz: it cannot be decompressed" in refused(tmp_path, files=str(file))


def test_a_line_that_is_no_json(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "good"}\n{"text": "bad\n')
    assert "a.jsonl:2: is not JSON" in refused(tmp_path, files=str(tmp_path / "a.jsonl"))


def test_a_table_that_was_cut_short(tmp_path: Path) -> None:
    parquet(tmp_path / "a.parquet", ["x"] * 100)
    content = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(content[:-30])
    assert "a.parquet: this is no whole Parquet file" in refused(tmp_path, files=str(tmp_path / "a.parquet"))


def test_a_field_that_is_not_there(tmp_path: Path) -> None:
    jsonl(tmp_path / "a.jsonl", ["x"])
    told = refused(tmp_path, files=str(tmp_path / "a.jsonl"), text="{txet}")
    assert told == "text: the data have no field 'txet'; did you mean 'text'?"


def test_files_of_several_formats(tmp_path: Path) -> None:
    text(tmp_path / "a.txt", ["x"])
    jsonl(tmp_path / "b.jsonl", ["x"])
    assert "files of several formats: json, text" in refused(tmp_path, files=str(tmp_path / "*"))


def test_a_file_for_training_and_for_validation(tmp_path: Path) -> None:
    text(tmp_path / "a.txt", ["x"])
    told = refused(tmp_path, files=str(tmp_path / "*.txt"), validation=str(tmp_path / "a.txt"))
    assert "it is named for training and for validation" in told
