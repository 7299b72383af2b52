"""Data of one's own: each form that a person may have them in is prepared by a command, and each mistake in them is one
line with the file, the line and the way to correct it.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import pickle
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest

from scaling.base.errors import BAD_INPUT
from scaling.cli import main
from scaling.config.compose import load
from scaling.config.schema import build

REVIEWS = [f'review {number}, of "things"\nand a second line {number * 7}' for number in range(200)]
IDS = np.random.default_rng(0).integers(4, 500, 20_000).astype(np.uint16)
IDS[::50] = 3


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SCALING_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def prepared(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    learned = [] if words[0] == "tokens" else ["data.tokenizer={kind: Byte}", "data.validation=0.1"]
    code = main(["data", "prepare", *learned, *words, "--json"])
    out, error = capsys.readouterr()
    assert code == 0, error
    return json.loads(out)


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["data", "prepare", *words]) == BAD_INPUT
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("scaling: ")
    assert error.count("\n") == 1
    return error


def documents(**line: object) -> list[str]:
    corpus = build("corpus", line)
    texts = list(corpus.snapshot(Path()).documents())
    assert list(corpus.snapshot(Path()).documents()) == texts
    return [one.text for one in texts]


def table(file: Path, rows: list[list[str]], **form: Any) -> None:
    content = io.StringIO(newline="")
    csv.writer(content, **form).writerows(rows)
    raw = content.getvalue().encode()
    file.write_bytes(gzip.compress(raw) if file.suffix == ".gz" else raw)


# --- a folder ---


def test_a_folder_is_read_with_the_folders_in_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "mine" / "deep").mkdir(parents=True)
    (folder / "mine" / ".git").mkdir()
    for number, name in enumerate(("a.txt", "deep/b.md", "picture.png", ".git/c.txt")):
        (folder / "mine" / name).write_text("\n\n".join(f"{name} {number} {line}" for line in range(100)))
    texts = documents(kind="Files", files="mine")
    assert {text.split()[0] for text in texts} == {"a.txt", "deep/b.md"}
    first = prepared(capsys, "files", "data.corpus.files=mine")
    assert first["train"]["documents"] + first["validation"]["documents"] == 200
    (folder / "mine" / "new.txt").write_text("one more")
    assert "it has changed" in shown(capsys, "files", "data.corpus.files=mine")


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["data", "show", "data.tokenizer={kind: Byte}", "data.validation=0.1", *words]) == BAD_INPUT
    return capsys.readouterr().err


def test_a_folder_without_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "pictures").mkdir()
    assert "'pictures': the folder holds no file of " in refused(capsys, "files", "data.corpus.files=pictures")
    (folder / "pictures" / "a.png").write_bytes(b"\x89PNG")
    error = refused(capsys, "files", "data.corpus.files=pictures")
    assert "it holds .png; name the files by a glob, as in pictures/**/*.png" in error
    (folder / "pictures" / "b.txt").write_bytes(b"\xe9t\xe9")
    assert "b.txt:1: byte 0 of the line is 0xe9, which is not UTF-8; convert" in refused(
        capsys, "files", "data.corpus.files=pictures"
    )


# --- tables ---


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.csv.gz"])
def test_a_column_of_a_table(folder: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    rows = [["id", "review"], *([str(number), review] for number, review in enumerate(REVIEWS))]
    table(folder / name, rows, delimiter="\t" if "tsv" in name else ",")
    assert documents(kind="Files", files=name, text="{review}") == REVIEWS
    told = prepared(capsys, "files", f"data.corpus.files={name}", "data.corpus.text={review}")
    assert told["train"]["documents"] + told["validation"]["documents"] == len(REVIEWS)


def test_values_are_the_text_that_is_written(folder: Path) -> None:
    """Neither a number, a date nor NA is read into what is written, and an empty field is no document."""
    written = ["007", "1e3", "NA", "null", "2026-01-02", "", " spaced ", "x" * 200_000]
    table(folder / "a.csv", [["text", "n"], *([value, "1"] for value in written)])
    assert documents(kind="Files", files="a.csv") == [value for value in written if value]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("id,review\n1,good\n2,bad,worse\n", "a.csv:3: the row has 3 fields, and the first row names 2; quote"),
        ('id,review\n1,"two\nlines"\n2\n', "a.csv:4: the row has 1 field, and the first row names 2"),
        ('id,review\n1,good\n2,"never closed\n3,x\n', "a.csv:3: the row cannot be read: unexpected end of data; write"),
        ('id,review\n1,"a"b\n', "a.csv:2: the row cannot be read: ',' expected after '\"'"),
        ("id;review\n1;good\n", "a.csv:1: the first row has no ',', and is separated by ';'; separate"),
        ("id,review,id\n1,good,2\n", "a.csv:1: there are two columns 'id'; rename one of them"),
        (
            "id,reviews\n1,good\n",
            "data.corpus.text='{review}': the data have no field 'review'; did you mean 'reviews'?",
        ),
        ("", "a.csv: the corpus is empty; name files that hold something"),
        ("\n\n", "a.csv: it is empty; its first row must name the columns"),
        ("id,review\n", "the corpus is empty: it has no document to train on"),
    ],
)
def test_mistakes_in_a_table(folder: Path, capsys: pytest.CaptureFixture[str], content: str, message: str) -> None:
    (folder / "a.csv").write_text(content)
    assert message in refused(capsys, "files", "data.corpus.files=a.csv", "data.corpus.text={review}")


# --- data named by their file ---


def test_data_are_named_by_their_file_or_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "mine").mkdir()
    (folder / "mine" / "a.txt").write_text("\n\n".join(REVIEWS))
    table(folder / "a.csv", [["review"], *([review] for review in REVIEWS)])
    arrays(folder)
    assert prepared(capsys, "mine") == prepared(capsys, "files", "data.corpus.files=mine")
    named = ["files", "data.corpus.files=a.csv", "data.corpus.text={review}"]
    assert prepared(capsys, "a.csv", "data.corpus.text={review}") == prepared(capsys, *named)
    assert main(["data", "prepare", "a.npy", "data.vocabulary=500"]) == 0
    assert "vocabulary" in capsys.readouterr().out
    (folder / "model.yaml").write_text("base: decoder\ndata: mine\ndata.validation: 0.1\n")
    assert load("model.yaml")["data.corpus.files"] == "mine"
    assert "there is no data 'yours'" in refused(capsys, "yours")
    assert "there is no file 'yours.csv'; give" in refused(capsys, "yours.csv")
    saved(folder)
    assert prepared(capsys, "one", "data.corpus.text={content}")["train"]["documents"]
    (folder / "ids").mkdir()
    (folder / "a.npy").rename(folder / "ids" / "a.npy")
    (folder / "ids" / "a.ds.index").touch()
    assert load("decoder", ["data=ids"])["data.kind"] == "Tokens"


# --- a template as one writes it ---


@pytest.mark.parametrize(
    ("text", "tokenizer"),
    [("{content}: {title}", "{kind: ByteBPE, vocabulary: 300}"), ("[{title}] {content}", "{kind: Byte}")],
)
def test_a_template_is_text_on_the_command_line(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str, tokenizer: str
) -> None:
    rows = [{"title": f"t{number}", "content": review} for number, review in enumerate(REVIEWS)]
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["files", "data.corpus.files=a.jsonl", f"data.corpus.text={text}", f"data.tokenizer={tokenizer}"]
    told = prepared(capsys, *words)
    assert told["train"]["documents"] + told["validation"]["documents"] == len(REVIEWS)
    error = refused(capsys, *words[:2], f"data.corpus.text={text.replace('content', 'contents')}", words[3])
    assert ": data.corpus.text='" in error, "the key stands once, whether or not the tokenizer was learning"
    assert "the data have no field 'contents'; did you mean 'content'?" in error


# --- arrays of ids ---


def arrays(folder: Path) -> None:
    np.save(folder / "a.npy", IDS[:12_000])
    np.save(folder / "b.npy", IDS[12_000:].astype(np.int64).reshape(80, 100))
    IDS.tofile(folder / "plain.bin")
    header = np.zeros(256, "<i4")
    header[:3] = 20240520, 1, len(IDS)
    (folder / "header.bin").write_bytes(header.tobytes() + IDS.tobytes())
    IDS.tofile(folder / "00000.ds")
    IDS.astype("<i4").tofile(folder / "megatron.bin")
    (folder / "megatron.idx").write_bytes(b"MMIDIDX\0\0" + (1).to_bytes(8, "little") + bytes([4]) + bytes(16))


@pytest.mark.parametrize(
    "words",
    [
        ["data.files=[a.npy, b.npy]"],
        ["data.files=plain.bin", "data.dtype=uint16"],
        ["data.files=header.bin"],
        ["data.files=*.ds"],
        ["data.files=megatron.bin"],
        ["data.files=a.npy", "data.validation=b.npy"],
    ],
    ids=["npy", "bin", "nanogpt", "datatrove", "megatron", "files for validation"],
)
def test_ids_come_out_as_they_are(folder: Path, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    arrays(folder)
    told = prepared(capsys, "tokens", "data.vocabulary=500", *words)
    assert told["train"]["vocabulary"] == 500
    data = build("data", {"kind": "Tokens", "vocabulary": 500, **line(words)})
    rows = [data.open(split, folder / "data").read(np.arange(10), 20).tokens for split in ("train", "validation")]
    assert told["train"]["tokens"] + told["validation"]["tokens"] == len(IDS)
    first = told["train"]["tokens"]
    np.testing.assert_array_equal(rows[0].ravel(), IDS[:200])
    np.testing.assert_array_equal(rows[1].ravel(), IDS[first : first + 200])


def line(words: list[str]) -> dict[str, Any]:
    from scaling.config.compose import assignments

    return assignments(words)["data"]


def test_documents_end_at_eos(folder: Path) -> None:
    arrays(folder)
    data = build("data", {"kind": "Tokens", "files": "a.npy", "vocabulary": 500, "eos": 3, "validation": 0.123})
    source = data.open("train", folder / "data")
    assert source.tokens % 50 == 1, "validation begins behind the end of a document"
    read = source.read(np.array([2]), 120, documents=True)
    assert read.documents is not None
    expected = 1 + np.concatenate([[0], np.cumsum(read.tokens[0] == 3)[:-1]])
    np.testing.assert_array_equal(read.documents[0], expected)
    assert pickle.loads(pickle.dumps(source)).read(np.array([2]), 120).tokens.tolist() == read.tokens.tolist()
    assert len(pickle.dumps(source)) < 2000


def test_the_vocabulary_may_be_that_of_a_tokenizer(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from scaling.data.codec import Codec

    codec = Codec(build("tokenizer", {"kind": "Byte"}).fit(iter(())))
    codec.save(folder / "tokenizer.json")
    ids = [token for text in REVIEWS for token in (*codec.encode([text])[0], codec.specials["eos"])]
    np.save(folder / "text.npy", np.array(ids, np.uint16))
    words = ["tokens", "data.files=text.npy", "data.tokenizer={kind: File, path: tokenizer.json}"]
    assert prepared(capsys, *words)["train"]["vocabulary"] == 260
    assert main(["data", "show", *words, "--windows", "1"]) == 0
    assert "things" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["data.files=a.npy"], "data.vocabulary=None: arrays of ids do not state their vocabulary; give"),
        (["data.files=a.npy", "data.vocabulary=400"], "is beyond the vocabulary of 400; raise data.vocabulary"),
        (["data.files=plain.bin"], "plain.bin: data.dtype: a .bin file does not state the type of its ids; set"),
        (["data.files=plain.bin", "data.dtype=uint32"], "beyond the vocabulary of 500; raise"),
        (
            ["data.files=wide.bin", "data.dtype=uint16"],
            "every second uint16 is 0, as where ids are stored in more bytes",
        ),
        (["data.files=odd.bin", "data.dtype=uint16"], "odd.bin: data.dtype='uint16': its 3 bytes are no whole number"),
        (["data.files=a.npy", "data.dtype=int32"], "it holds uint16, as its header states; leave data.dtype out"),
        (["data.files=real.npy"], "real.npy: it holds float32, and token ids are whole numbers; save"),
        (["data.files=objects.npy"], "objects.npy: it is no .npy array that can be mapped: "),
        (["data.files=negative.npy"], "negative.npy: token -5 at position 2 is negative"),
        (["data.files=none.npy"], "none.npy: it is empty"),
        (["data.files=nowhere.npy"], "data.files='nowhere.npy': there is no such file"),
        (["data.files=a.npy", "data.eos=500"], "data.eos=500: it is beyond the vocabulary of 500"),
        (["data.files=a.npy", "data.validation=0"], "no token of 12,000 falls to validation"),
        (["data.files=a.npy", "data.validation=a.npy"], "a.npy: it is named for training and for validation"),
        (["data.files=a.npy", "data.tokenizer=ByteBPE"], "it learns from text, and the data are tokens"),
    ],
)
def test_mistakes_in_arrays(folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    arrays(folder)
    IDS.astype("<u4").tofile(folder / "wide.bin")
    (folder / "odd.bin").write_bytes(b"abc")
    np.save(folder / "real.npy", IDS.astype(np.float32))
    np.save(folder / "objects.npy", np.array([{}, 1], dtype=object), allow_pickle=True)
    np.save(folder / "negative.npy", np.array([1, 2, -5]))
    np.save(folder / "none.npy", IDS[:0])
    given = [] if "vocabulary=None" in message else ["data.vocabulary=500"]
    assert message in refused(capsys, "tokens", *given, *words)


# --- what save_to_disk wrote ---


def saved(folder: Path) -> None:
    features = datasets.Features(
        {"content": datasets.Value("string"), "label": datasets.ClassLabel(names=["bad", "good"])}
    )
    rows = {"content": REVIEWS, "label": [number % 2 for number in range(len(REVIEWS))]}
    one = datasets.Dataset.from_dict(rows, features=features)
    one.save_to_disk(str(folder / "one"))
    both = datasets.DatasetDict({"train": one.select(range(180)).shuffle(seed=1), "test": one.select(range(180, 200))})
    both.save_to_disk(str(folder / "both"))
    one.with_format("numpy").save_to_disk(str(folder / "formatted"))


def test_a_set_that_was_saved_to_disk(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved(folder)
    for name in ("one", "formatted"):
        assert documents(kind="Saved", path=name, text="{content}") == REVIEWS
    assert documents(kind="Saved", path="one", text="{label}")[:2] == ["bad", "good"]
    assert sorted(documents(kind="Saved", path="both", text="{content}")) == sorted(REVIEWS[:180])
    words = ["saved", "data.corpus.path=both", "data.corpus.validation=test", "data.corpus.text={content}"]
    told = prepared(capsys, *words)
    assert (told["train"]["documents"], told["validation"]["documents"]) == (180, 20)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["saved", "data.corpus.path=nowhere"], "data.corpus.path='nowhere': there is no such folder"),
        (["saved", "data.corpus.path=."], "the folder has neither dataset_dict.json nor state.json"),
        (["saved", "data.corpus.path=both", "data.corpus.split=tset"], "no such split; did you mean 'test'?"),
        (["saved", "data.corpus.path=both", "data.corpus.validation=train"], "it is trained on; name another split"),
        (
            ["saved", "data.corpus.path=one", "data.corpus.validation=test"],
            "holds one set without splits; leave it out",
        ),
        (["saved", "data.corpus.path=one", "data.corpus.text={txt}"], "no field 'txt'; choose from content, label"),
        (["saved", "data.corpus.path=broken"], "broken: the set cannot be read: "),
        (["files", "data.corpus.files=one"], "`save_to_disk` wrote; write data.corpus='{kind: Saved, path: one}'"),
    ],
)
def test_mistakes_in_a_saved_set(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    saved(folder)
    broken = folder / "broken"
    broken.mkdir()
    for file in (folder / "one").iterdir():
        (broken / file.name).write_bytes(file.read_bytes()[: 300 if file.suffix == ".arrow" else None])
    assert message in refused(capsys, *words)
