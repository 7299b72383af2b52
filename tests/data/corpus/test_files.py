"""Data of one's own: what is in files comes out, whatever their format, and each mistake in them is one line with the
file, the line and the way to correct it.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import zstandard

from scaling.base.errors import BAD_INPUT, ScalingError
from scaling.config.compose import load
from scaling.config.schema import build
from scaling.data.documents import Document, fill
from tests.data.conftest import prepared, refused

REVIEWS = [f'wörds {number}, of "things"\nand a second line {number * 7}' for number in range(60)]
LEARNED = ["data.tokenizer={kind: Byte}", "data.validation=0.1"]


def documents(**line: Any) -> list[Document]:
    corpus = build("corpus", {"kind": "Files", **line})
    held = list(corpus.snapshot(Path()).documents())
    assert list(corpus.snapshot(Path()).documents()) == held
    return held


def texts(**line: Any) -> list[str]:
    return [document.text for document in documents(**line)]


def separated(separator: str, rows: list[list[str]]) -> bytes:
    content = io.StringIO(newline="")
    csv.writer(content, delimiter=separator).writerows(rows)
    return content.getvalue().encode()


def json_lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def parquet(texts: list[str]) -> bytes:
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table({"text": texts, "url": [""] * len(texts)}), sink)
    return sink.getvalue().to_pybytes()


FORMATS: dict[str, Callable[[list[str]], bytes]] = {
    "txt": lambda texts: "\n\n".join(texts).encode(),
    "csv": lambda texts: separated(",", [["id", "text"], *(["1", text] for text in texts)]),
    "tsv": lambda texts: separated("\t", [["id", "text"], *(["1", text] for text in texts)]),
    "jsonl": lambda texts: json_lines([{"id": 1, "text": text} for text in texts]),
    "json": lambda texts: json.dumps([{"text": text} for text in texts]).encode(),
    "parquet": parquet,
}


@pytest.mark.parametrize("ending", FORMATS)
def test_every_format_gives_the_same_documents(folder: Path, ending: str) -> None:
    for suffix, compress in {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}.items():
        if not (ending == "parquet" and suffix):
            for number in range(2):
                content = FORMATS[ending](REVIEWS[30 * number : 30 * (number + 1)])
                (folder / f"{number}.{ending}{suffix}").write_bytes(compress(content))
            assert texts(files=f"*.{ending}{suffix}") == REVIEWS


def test_values_are_the_text_that_is_written_and_templates_put_them_in_their_places(folder: Path) -> None:
    """Neither a number, a date nor NA is read into what is written, and an empty field is no document."""
    written = ["007", "1e3", "NA", "null", "2026-01-02", "", " spaced ", "x" * 200_000]
    (folder / "a.csv").write_bytes(separated(",", [["text", "n"], *([value, "1"] for value in written)]))
    assert texts(files="a.csv") == [value for value in written if value]
    rows = [{"q": {"text": f"q{i}"}, "a": [f"a{i}", "b"] if i else []} for i in range(3)]
    (folder / "a.jsonl").write_bytes(json_lines(rows))
    held = documents(files="a.jsonl", source="ask: {q.text}", text="{a.0}")
    assert held == [Document("a1", "ask: q1"), Document("a2", "ask: q2")]  # the first has no answer
    row = {"text": "a {b}", "answers": ["x", "y"], "score": 3.75, "no": None, "large": 10**400}
    for template, filled in {
        "{text} {answers}": "a {b} x, y",
        "{score:.1f}": "3.8",
        '{"text": {score}}': '{"text": 3.75}',
        "{large:,}": f"{10**400:,}",
        "{no.deeper}": None,
    }.items():
        assert fill(template, row, "text") == filled
    for template, message in {
        "{txt}": "text: the data have no field 'txt'; did you mean 'text'?",
        "{text.upper}": "'text.upper' leads into str, which has no parts",
        "{large:.1f}": "cannot be written as '.1f'",
        "{score:2000000000.1f}": "has a form that is none of a number",
        "{text!r}": "{text!r} has a conversion",
        "{text:{score}}": "a field is within the form of another",
    }.items():
        with pytest.raises(ScalingError) as caught:
            fill(template, row, "text")
        assert message in str(caught.value)


def test_plain_text_is_cut_as_asked_and_folders_are_read_with_the_folders_in_them(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "a.txt").write_text("one\ntwo\n\nthree")
    assert texts(files="a.txt", document="line") == ["one", "two", "", "three"]
    assert texts(files="a.txt") == ["one\ntwo", "three"]
    assert texts(files="a.txt", document="file") == ["one\ntwo\n\nthree"]
    for name in ("a.txt", "deep/b.md", "picture.png", ".git/c.txt"):
        (folder / "mine" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "mine" / name).write_text("\n\n".join(f"{name} {line}" for line in range(30)))
    assert {text.split()[0] for text in texts(files="mine")} == {"a.txt", "deep/b.md"}
    assert len(texts(files=["a.txt", "mine/**/*.*"])) == 2 + 3 * 30
    first = prepared(capsys, "files", "data.corpus.files=mine", *LEARNED)
    assert first["train"]["documents"] + first["validation"]["documents"] == 60
    assert prepared(capsys, "mine", *LEARNED) == first
    (folder / "mine" / "new.txt").write_text("one more")
    with pytest.raises(ScalingError, match=r"new\.txt: it has changed"):
        load("decoder", ["data=mine", *LEARNED]).build("data").open("train", folder / "data")


def test_data_are_named_by_their_file_or_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a.csv").write_bytes(separated(",", [["review"], *([review] for review in REVIEWS)]))
    np.save(folder / "a.npy", np.arange(400, dtype=np.uint16))
    datasets.Dataset.from_dict({"content": REVIEWS}).save_to_disk(str(folder / "one"))
    (folder / "ids").mkdir()
    (folder / "ids" / "a.ds.index").touch()
    (folder / "ids" / "a.npy").write_bytes((folder / "a.npy").read_bytes())
    named = prepared(capsys, "files", "data.corpus.files=a.csv", "data.corpus.text={review}", *LEARNED)
    assert prepared(capsys, "a.csv", "data.corpus.text={review}", *LEARNED) == named
    assert prepared(capsys, "one", "data.corpus.text={content}", *LEARNED)["train"] == named["train"]
    for name, kind in {"a.npy": "Tokens", "ids": "Tokens", "one": "Text"}.items():
        assert load("decoder", [f"data={name}"])["data.kind"] == kind
    (folder / "model.yaml").write_text("base: decoder\ndata: a.csv\ndata.validation: 0.1\n")
    assert load("model.yaml")["data.corpus.files"] == "a.csv"
    assert "there is no data 'yours'" in refused(capsys, "yours")
    assert "there is no file 'yours.csv'; give" in refused(capsys, "yours.csv")


def test_a_template_is_text_on_the_command_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"title": f"t{number}", "content": review} for number, review in enumerate(REVIEWS)]
    (folder / "a.jsonl").write_bytes(json_lines(rows))
    for text, tokenizer in (
        ("{content}: {title}", "{kind: ByteBPE, vocabulary: 300}"),
        ("[{title}] {content}", "{kind: Byte}"),
    ):
        words = ["files", "data.corpus.files=a.jsonl", f"data.tokenizer={tokenizer}", "data.validation=0.1"]
        told = prepared(capsys, *words, f"data.corpus.text={text}")
        assert told["train"]["documents"] + told["validation"]["documents"] == len(REVIEWS)
        error = refused(capsys, *words, f"data.corpus.text={text.replace('content', 'contents')}")
        assert ": data.corpus.text='" in error, "the key stands once, whether or not the tokenizer was learning"
        assert "the data have no field 'contents'; did you mean 'content'?" in error


WORDS = ("some words in a row\n" * 1000).encode()
TABLE = {"text": "{review}"}


@pytest.mark.parametrize(
    ("files", "line", "message"),
    [
        ({}, {"files": "none.txt"}, "files='none.txt': there is no such file"),
        ({"a.png": b"\x89PNG"}, {"files": "."}, "it holds .png; name the files by a glob, as in ./**/*.png"),
        ({"a.txt": b""}, {}, "a.txt: the corpus is empty; name files that hold something"),
        ({"0.txt": b"", "a.txt": b"x" * 3_000_001 + b"\xff\n"}, {}, "a.txt:1: byte 3000001 of the line is 0xff, which"),
        ({"a.txt.gz": gzip.compress(b"good\n\nb\xe9d\n")}, {}, "a.txt.gz:3: byte 1 of the line is 0xe9"),
        ({"a.txt.gz": gzip.compress(WORDS)[:-20]}, {}, "a.txt.gz: it cannot be decompressed"),
        ({"a.txt.zst": zstandard.compress(WORDS)[:-20]}, {}, "a.txt.zst: it cannot be decompressed"),
        ({"a.jsonl": b'{"text": "' + b"x" * (1 << 20) + b"\xff\n"}, {}, "a.jsonl:1: byte 1048586 of the line is 0xff"),
        ({"a.jsonl": b'{"text": "good"}\n{"text": "bad\n'}, {}, "a.jsonl:2: is not JSON"),
        ({"a.txt": b"x", "b.jsonl": b'{"text": "x"}\n'}, {}, "files of several formats: json, text"),
        ({"a.txt": b"x"}, {"validation": "a.txt"}, "a.txt: it is named for training and for validation"),
        ({"a.parquet": b"PAR1" + b"x" * 100}, {}, "a.parquet: this is no whole Parquet file"),
        ({"a.csv": b"id,review\n1,good\n2,bad,worse\n"}, TABLE, "a.csv:3: the row has 3 fields, and the first"),
        ({"a.csv": b'id,review\n1,"two\nlines"\n2\n'}, TABLE, "a.csv:4: the row has 1 field, and the first row"),
        ({"a.csv": b'id,review\n2,"never closed\n3,x\n'}, TABLE, "a.csv:2: the row cannot be read: unexpected"),
        ({"a.csv": b"id;review\n1;good\n"}, TABLE, "a.csv:1: the first row has no ',', and is separated by ';'"),
        ({"a.csv": b"id,review,id\n1,good,2\n"}, TABLE, "a.csv:1: there are two columns 'id'; rename one of them"),
        ({"a.csv": b"\n\n"}, TABLE, "a.csv: it is empty; its first row must name the columns"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_bad_input_is_one_line_with_the_place(
    folder: Path, files: dict[str, bytes], line: dict[str, str], message: str
) -> None:
    for name, content in files.items():
        (folder / name).write_bytes(content)
    with pytest.raises(ScalingError) as caught:
        documents(**{"files": "*", **line})
    assert caught.value.code == BAD_INPUT
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


# --- pairs, sets that `save_to_disk` wrote, and the sources of Python ---


def test_lines_of_two_files_are_pairs(folder: Path) -> None:
    def parallel(source: bytes, target: bytes) -> list[Document]:
        (folder / "a.de").write_bytes(source)
        (folder / "b.en").write_bytes(target)
        return documents(kind="Parallel", source="a.de", target="b.en")

    held = parallel("eins\nzwei\u2028drei\n".encode(), b"one\r\ntwo three\r\n")
    assert held == [Document("one", "eins"), Document("two three", "zwei\u2028drei")]
    for source, target, message in (
        (b"1\n2\n3\n", b"1\n2\n3\n4\n5\n", "a.de:4: it has 3 lines, and b.en has 5: line 4 there has no partner"),
        (b"1\n2\n", b"1\n", "b.en:2: it has 1 line, and a.de has 2: line 2 there has no partner"),
        (b"1\n \n3\n", b"1\n2\n3\n", "a.de:2: the line is empty, so the pair has one side"),
        ("1\nä\n".encode("latin-1"), b"1\n2\n", "a.de:2: byte 0 of the line is 0xe4, which is not UTF-8"),
    ):
        with pytest.raises(ScalingError) as error:
            parallel(source, target)
        assert message in str(error.value)


def test_a_set_that_was_saved_to_disk(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    label = datasets.ClassLabel(names=["bad", "good"])
    one = datasets.Dataset.from_dict({"content": REVIEWS, "label": [n % 2 for n in range(60)]}).cast_column(
        "label", label
    )
    one.save_to_disk(str(folder / "one"))
    one.with_format("numpy").save_to_disk(str(folder / "formatted"))
    splits = {"train": one.select(range(50)).shuffle(seed=1), "test": one.select(range(50, 60))}
    datasets.DatasetDict(splits).save_to_disk(str(folder / "both"))
    for name in ("one", "formatted"):
        assert texts(kind="Saved", path=name, text="{content}") == REVIEWS
    assert texts(kind="Saved", path="one", text="{label}")[:2] == ["bad", "good"]
    held = documents(kind="Saved", path="both", text="{content}", validation="test")
    assert sorted(document.text for document in held if document.split == "train") == sorted(REVIEWS[:50])
    assert [document.text for document in held if document.split == "validation"] == REVIEWS[50:]
    for words, message in (
        (["data.corpus.path=nowhere"], "data.corpus.path='nowhere': there is no such folder"),
        (["data.corpus.path=."], "the folder has neither dataset_dict.json nor state.json"),
        (["data.corpus.path=both", "data.corpus.split=tset"], "no such split; did you mean 'test'?"),
        (["data.corpus.path=both", "data.corpus.validation=train"], "it is trained on; name another split"),
        (["data.corpus.path=one", "data.corpus.validation=test"], "holds one set without splits; leave it out"),
    ):
        assert message in refused(capsys, "saved", *words, *LEARNED)
    error = refused(capsys, "files", "data.corpus.files=one")
    assert "`save_to_disk` wrote; write data.corpus='{kind: Saved, path: one}'" in error


def test_sources_of_python_are_those_of_the_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library, packages = tmp_path / "lib", tmp_path / "lib" / "site-packages"
    packages.mkdir(parents=True)
    (library / "one.py").write_text("one = 1\n")
    (library / "two.py").write_bytes(b"# -*- coding: latin-1 -*-\ntwo = '\xe9'\n")
    (library / "bad.py").write_bytes(b"three = '\xe9'\n")
    (packages / "four.py").write_text("four = 4\n")
    paths = {"stdlib": str(library), "purelib": str(packages), "platlib": str(packages)}
    monkeypatch.setattr(sysconfig, "get_paths", lambda: paths)

    def sources(root: Path, **line: Any) -> set[str]:
        return {document.text for document in build("corpus", {"kind": "Python", **line}).snapshot(root).documents()}

    standard = {"one = 1\n", "# -*- coding: latin-1 -*-\ntwo = 'é'\n"}
    assert sources(tmp_path / "standard", reach="standard") == standard
    assert sources(tmp_path) == {*standard, "four = 4\n"}
    (library / "one.py").write_text("one = 11\n")
    assert sources(tmp_path) == {*standard, "four = 4\n"}
    assert "one = 11\n" in sources(tmp_path / "elsewhere")
    (file,) = tmp_path.glob("snapshots/*.parquet")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ScalingError, match="the snapshot differs from its record"):
        sources(tmp_path)
