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

from scaling.base.errors import BAD_INPUT, ScalingError
from scaling.config.schema import build
from scaling.data.documents import Document

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


# --- bad input ---


TEXT = ("some words in a row\n" * 1000).encode()
ZIPPED = gzip.compress(TEXT)


@pytest.mark.parametrize(
    ("files", "line", "message"),
    [
        ({}, {"files": "none.txt"}, "files='none.txt': there is no such file"),
        ({"a.txt": b"x" * 10 + b"\xff\n"}, {}, "a.txt:1: byte 10 of the line is 0xff, which is not UTF-8"),
        ({"0.txt": b"", "a.txt": b"x" * 3_000_001 + b"\xff\n"}, {}, "a.txt:1: byte 3000001 of the line is 0xff"),
        ({"a.txt.gz": gzip.compress(b"good\n\nb\xe9d\n")}, {}, "a.txt.gz:3: byte 1 of the line is 0xe9"),
        ({"a.txt.gz": ZIPPED[:-20]}, {}, "a.txt.gz: it cannot be decompressed"),
        ({"a.txt.zst": zstandard.compress(TEXT)[:-20]}, {}, "a.txt.zst: it cannot be decompressed"),
        ({"a.jsonl": b'{"text": "' + b"x" * (1 << 20) + b"\xff\n"}, {}, "a.jsonl:1: byte 1048586 of the line is 0xff"),
        ({"a.jsonl": b'{"text": "good"}\n{"text": "bad\n'}, {}, "a.jsonl:2: is not JSON"),
        (
            {"a.jsonl": b'{"text": "x"}\n'},
            {"text": "{txet}"},
            "text: the data have no field 'txet'; did you mean 'text'?",
        ),
        ({"a.txt": b"x", "b.jsonl": b'{"text": "x"}\n'}, {}, "files of several formats: json, text"),
        ({"a.txt": b"x"}, {"validation": "a.txt"}, "a.txt: it is named for training and for validation"),
        ({"a.parquet": b"PAR1" + b"x" * 100}, {}, "a.parquet: this is no whole Parquet file"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_bad_input_is_one_line_with_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, bytes], line: dict[str, str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ScalingError) as caught:
        documents(tmp_path, **{"files": "*", **line})
    assert caught.value.code == BAD_INPUT
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
