"""Data of one's own: what is in files comes out, whatever their format, and each mistake in them is one line with the
file, the line and the way to correct it.
"""

import csv
import gzip
import io
import json
import sysconfig

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


def documents(folder, **line):
    snapshot = build("corpus", {"kind": "Files", **line}).snapshot(folder / "data")
    held = list(snapshot.documents())
    assert list(snapshot.documents()) == held
    return held


def texts(folder, **line):
    return [document.text for document in documents(folder, **line)]


def separated(separator, texts):
    content = io.StringIO(newline="")
    csv.writer(content, delimiter=separator).writerows([["id", "text"], *(["1", text] for text in texts)])
    return content.getvalue().encode()


def parquet(texts):
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table({"text": texts, "url": [""] * len(texts)}), sink)
    return sink.getvalue().to_pybytes()


FORMATS = {
    "txt": lambda texts: "\n\n".join(texts).encode(),
    "csv": lambda texts: separated(",", texts),
    "tsv": lambda texts: separated("\t", texts),
    "jsonl": lambda texts: "".join(json.dumps({"id": 1, "text": text}) + "\n" for text in texts).encode(),
    "json": lambda texts: json.dumps([{"text": text} for text in texts]).encode(),
    "parquet": parquet,
}


@pytest.mark.parametrize("ending", FORMATS)
def test_every_format_gives_the_same_documents(folder, ending):
    for suffix, compress in {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}.items():
        if not (ending == "parquet" and suffix):
            for number in range(2):
                content = FORMATS[ending](REVIEWS[30 * number : 30 * (number + 1)])
                (folder / f"{number}.{ending}{suffix}").write_bytes(compress(content))
            assert texts(folder, files=f"*.{ending}{suffix}") == REVIEWS


def test_values_are_the_text_that_is_written_and_templates_put_them_in_their_places(folder):
    written = ["007", "1e3", "NA", "null", "2026-01-02", "", " spaced ", "x" * 200_000]
    (folder / "a.csv").write_bytes(separated(",", written))
    assert texts(folder, files="a.csv") == [value for value in written if value]  # an empty field is no document
    rows = [{"q": {"text": f"q{i}"}, "a": [f"a{i}", "b"] if i else []} for i in range(3)]
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    held = documents(folder, files="a.jsonl", source="ask: {q.text}", text="{a.0}")
    assert held == [Document("a1", "ask: q1"), Document("a2", "ask: q2")]
    row = {"text": "a {b}", "answers": ["x", "y"], "score": 3.75, "no": None, "large": 10**400}
    for template, filled in {
        "{text} {answers}": "a {b} x, y",
        '{"text": {score:.1f}}': '{"text": 3.8}',
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


def test_data_are_named_by_their_file_or_folder(folder, capsys):
    (folder / "a.txt").write_text("one\ntwo\n\nthree")
    assert texts(folder, files="a.txt", document="line") == ["one", "two", "", "three"]
    assert texts(folder, files="a.txt", document="file") == ["one\ntwo\n\nthree"]
    for name in ("a.txt", "deep/b.md", "picture.png", ".git/c.txt"):
        (folder / "mine" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "mine" / name).write_text("\n\n".join(f"{name} {line}" for line in range(30)))
    assert {text.split()[0] for text in texts(folder, files="mine")} == {"a.txt", "deep/b.md"}
    assert len(texts(folder, files=["a.txt", "mine/**/*.*"])) == 2 + 3 * 30
    (folder / "a.csv").write_bytes(separated(",", REVIEWS))
    datasets.Dataset.from_dict({"text": REVIEWS}).save_to_disk(str(folder / "one"))
    (folder / "ids").mkdir()
    np.save(folder / "ids" / "a.npy", np.arange(400, dtype=np.uint16))
    (folder / "ids" / "a.ds.index").touch()
    first = prepared(capsys, "mine", *LEARNED)
    assert first == prepared(capsys, "files", "data.corpus.files=mine", *LEARNED)
    assert first["train"]["documents"] + first["validation"]["documents"] == 60
    named = [prepared(capsys, name, "data.corpus.text={text}", *LEARNED)["train"] for name in ("a.csv", "one")]
    assert named[0] == named[1]
    assert load("decoder", ["data=ids"])["data.kind"] == load("decoder", ["data=ids/a.npy"])["data.kind"] == "Tokens"
    (folder / "model.yaml").write_text("base: decoder\ndata: a.csv\ndata.validation: 0.1\n")
    assert load("model.yaml")["data.corpus.files"] == "a.csv"
    assert "there is no data 'yours'" in refused(capsys, "yours")
    assert "there is no file 'yours.csv'; give" in refused(capsys, "yours.csv")
    (folder / "mine" / "new.txt").write_text("one more")
    with pytest.raises(ScalingError, match=r"new\.txt: it has changed"):
        load("decoder", ["data=mine", *LEARNED]).build("data").open("train", folder / "data")


@pytest.mark.parametrize("tokenizer", ["{kind: ByteBPE, vocabulary: 300}", "{kind: Byte}"])
def test_a_template_is_text_on_the_command_line(folder, capsys, tokenizer):
    (folder / "a.csv").write_bytes(separated(",", REVIEWS))
    words = ["files", "data.corpus.files=a.csv", f"data.tokenizer={tokenizer}", "data.validation=0.1"]
    output = prepared(capsys, *words, "data.corpus.text={text}: {id}")
    assert output["train"]["documents"] + output["validation"]["documents"] == len(REVIEWS)
    error = refused(capsys, *words, "data.corpus.text=[{id}] {texts}")
    assert ": data.corpus.text='" in error, "the key stands once, whether or not the tokenizer was learning"
    assert "the data have no field 'texts'; did you mean 'text'?" in error


WORDS = ("some words in a row\n" * 1000).encode()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.png", b"\x89PNG", "it holds .png; name the files by a glob, as in ./**/*.png"),
        ("a.txt", b"", "a.txt: the corpus is empty; name files that hold something"),
        ("a.txt", b"x" * 3_000_001 + b"\xff\n", "a.txt:1: byte 3000001 of the line is 0xff, which is not UTF-8"),
        ("a.txt.gz", gzip.compress(b"good\n\nb\xe9d\n"), "a.txt.gz:3: byte 1 of the line is 0xe9"),
        ("a.txt.gz", gzip.compress(WORDS)[:-20], "a.txt.gz: it cannot be decompressed"),
        ("a.txt.zst", zstandard.compress(WORDS)[:-20], "a.txt.zst: it cannot be decompressed"),
        ("a.jsonl", b'{"text": "' + b"x" * (1 << 20) + b"\xff\n", "a.jsonl:1: byte 1048586 of the line is 0xff"),
        ("a.jsonl", b'{"text": "good"}\n{"text": "bad\n', "a.jsonl:2: is not JSON"),
        ("a.parquet", b"PAR1" + b"x" * 100, "a.parquet: this is no whole Parquet file"),
        ("a.csv", b"id,text\n1,good\n2,bad,worse\n", "a.csv:3: the row has 3 fields, and the first row names 2"),
        ("a.csv", b'id,text\n1,"two\nlines"\n2\n', "a.csv:4: the row has 1 field, and the first row names 2"),
        ("a.csv", b'id,text\n2,"never closed\n3,x\n', "a.csv:2: the row cannot be read: unexpected end of data"),
        ("a.csv", b"id;text\n1;good\n", "a.csv:1: the first row has no ',', and is separated by ';'"),
        ("a.csv", b"id,text,id\n1,good,2\n", "a.csv:1: there are two columns 'id'; rename one of them"),
        ("a.csv", b"\n\n", "a.csv: it is empty; its first row must name the columns"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_input_is_one_line_with_the_place(folder, name, content, message):
    (folder / "in").mkdir()
    (folder / "in" / name).write_bytes(content)
    with pytest.raises(ScalingError) as caught:
        documents(folder, files="in" if name == "a.png" else "in/*")
    assert caught.value.code == BAD_INPUT
    assert message.replace("./", "in/") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_missing_of_several_formats_or_named_twice_are_refused(folder):
    for name in ("a.txt", "b.jsonl"):
        (folder / name).write_text('{"text": "x"}\n')
    for line, message in (
        ({"files": "none.txt"}, "files='none.txt': there is no such file"),
        ({"files": "*"}, "files of several formats: json, text"),
        ({"files": "a.txt", "validation": "a.txt"}, "a.txt: it is named for training and for validation"),
    ):
        with pytest.raises(ScalingError, match=message):
            documents(folder, **line)


# --- pairs, sets that `save_to_disk` wrote, and the sources of Python ---


@pytest.mark.parametrize(
    ("source", "target", "stated"),
    [
        ("eins\nzwei\u2028drei\n".encode(), b"one\r\ntwo three\r\n", ""),
        (b"1\n2\n3\n", b"1\n2\n3\n4\n5\n", "a.de:4: it has 3 lines, and b.en has 5: line 4 there has no partner"),
        (b"1\n2\n", b"1\n", "b.en:2: it has 1 line, and a.de has 2: line 2 there has no partner"),
        (b"1\n \n3\n", b"1\n2\n3\n", "a.de:2: the line is empty, so the pair has one side"),
        ("1\nä\n".encode("latin-1"), b"1\n2\n", "a.de:2: byte 0 of the line is 0xe4, which is not UTF-8"),
    ],
    ids=["pairs", "more targets", "more sources", "empty source", "latin-1"],
)
def test_lines_of_two_files_are_pairs(folder, source, target, stated):
    (folder / "a.de").write_bytes(source)
    (folder / "b.en").write_bytes(target)
    line = {"kind": "Parallel", "source": "a.de", "target": "b.en"}
    if not stated:
        assert documents(folder, **line) == [Document("one", "eins"), Document("two three", "zwei\u2028drei")]
        return
    with pytest.raises(ScalingError, match=stated):
        documents(folder, **line)


def test_a_set_that_was_saved_to_disk(folder, capsys):
    one = datasets.Dataset.from_dict({"content": REVIEWS, "label": [number % 2 for number in range(60)]})
    one = one.cast_column("label", datasets.ClassLabel(names=["bad", "good"]))
    one.save_to_disk(str(folder / "one"))
    one.with_format("numpy").save_to_disk(str(folder / "formatted"))
    splits = {"train": one.select(range(50)).shuffle(seed=1), "test": one.select(range(50, 60))}
    datasets.DatasetDict({**splits}).save_to_disk(str(folder / "both"))
    capsys.readouterr()  # the bars of writing these sets
    for name in ("one", "formatted"):
        assert texts(folder, kind="Saved", path=name, text="{content}") == REVIEWS
    assert texts(folder, kind="Saved", path="one", text="{label}")[:2] == ["bad", "good"]
    held = documents(folder, kind="Saved", path="both", text="{content}", validation="test")
    assert sorted(document.text for document in held if document.split == "train") == sorted(REVIEWS[:50])
    assert [document.text for document in held if document.split == "validation"] == REVIEWS[50:]
    for words, message in (
        (["saved", "data.corpus.path=nowhere"], "data.corpus.path='nowhere': there is no such folder"),
        (["saved", "data.corpus.path=."], "the folder has neither dataset_dict.json nor state.json"),
        (["saved", "data.corpus.path=both", "data.corpus.split=tset"], "no such split; did you mean 'test'?"),
        (["saved", "data.corpus.path=both", "data.corpus.validation=train"], "it is trained on; name another split"),
        (["saved", "data.corpus.path=one", "data.corpus.validation=test"], "one set without splits; leave it out"),
        (["files", "data.corpus.files=one"], "`save_to_disk` wrote; write data.corpus='{kind: Saved, path: one}'"),
    ):
        assert message in refused(capsys, *words, *LEARNED)


def test_sources_of_python_are_those_of_the_snapshot(folder, monkeypatch):
    library, packages = folder / "lib", folder / "lib" / "site-packages"
    packages.mkdir(parents=True)
    (library / "one.py").write_text("one = 1\n")
    (library / "two.py").write_bytes(b"# -*- coding: latin-1 -*-\ntwo = '\xe9'\n")
    (library / "bad.py").write_bytes(b"three = '\xe9'\n")
    (packages / "four.py").write_text("four = 4\n")
    paths = {"stdlib": str(library), "purelib": str(packages), "platlib": str(packages)}
    monkeypatch.setattr(sysconfig, "get_paths", lambda: paths)
    standard = {"one = 1\n", "# -*- coding: latin-1 -*-\ntwo = 'é'\n"}
    assert {*texts(folder, kind="Python", reach="standard")} == standard
    assert {*texts(folder, kind="Python")} == {*standard, "four = 4\n"}
    (library / "one.py").write_text("one = 11\n")
    assert {*texts(folder, kind="Python")} == {*standard, "four = 4\n"}
    assert "one = 11\n" in texts(folder / "elsewhere", kind="Python")
    (file,) = folder.glob("data/snapshots/python-installed*.parquet")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ScalingError, match="the snapshot differs from its record"):
        texts(folder, kind="Python")
