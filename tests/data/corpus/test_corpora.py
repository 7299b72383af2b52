"""What is in files and in published sets comes out, whatever their format and parts, and each mistake is one line."""

import gzip
import json
import shutil
import sysconfig
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import httpx
import huggingface_hub
import numpy as np
import pandas
import pytest
import tokenizers
import zstandard

from scaling.base.errors import ScalingError
from scaling.config.compose import load
from scaling.config.files import shipped
from scaling.config.schema import build
from scaling.data import corpus, rows
from scaling.data.documents import Document, fill
from tests.command_line import refuses
from tests.data.conftest import hub_copy, prepared, refused

REVIEWS = [f'wörds {number}, of "things"\nand a second line {number * 7}' for number in range(60)]
LEARNED = ["data.tokenizer={kind: Byte}", "data.validation=0.1"]


def documents(folder, **line):
    return list(build("corpus", {"kind": "Files", **line}).snapshot(folder / "data").documents())


def texts(folder, **line):
    return [document.text for document in documents(folder, **line)]


def table(texts):
    return pandas.DataFrame({"id": "1", "text": texts})


FORMATS = {
    "txt": lambda texts: "\n\n".join(texts).encode(),
    "csv": lambda texts: table(texts).to_csv(index=False).encode(),
    "tsv": lambda texts: table(texts).to_csv(index=False, sep="\t").encode(),
    "jsonl": lambda texts: table(texts).to_json(orient="records", lines=True).encode(),
    "json": lambda texts: table(texts).to_json(orient="records").encode(),
    "parquet": lambda texts: table(texts).to_parquet(row_group_size=3),
}


@pytest.mark.parametrize("ending", FORMATS)
def test_every_format_gives_the_same_documents(folder, ending):
    for suffix, compress in {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}.items():
        if not (ending == "parquet" and suffix):
            for number in range(2):
                content = FORMATS[ending](REVIEWS[30 * number : 30 * (number + 1)])
                (folder / f"{number}.{ending}{suffix}").write_bytes(compress(content))
            assert texts(folder, files=f"*.{ending}{suffix}") == REVIEWS


BLANKS = "\n\n" + "\n\n\n".join(REVIEWS[:30]) + "\n\n\n\n\n" + "\n\n".join(REVIEWS[30:])
# Of each corpus its line; the test writes the files.
CORPORA: dict[str, dict[str, Any]] = {
    "paragraphs": {"files": "a.txt"},
    "line ends of Windows": {"files": "windows.txt"},
    "lines": {"files": "a.txt", "document": "line"},
    "JSON lines": {"files": "a.jsonl"},
    "Parquet": {"files": "a.parquet"},
    "several": {"files": "few/*.txt", "document": "file", "limit": 800},
    "held out": {"files": "a.jsonl", "validation": "v*.csv", "limit": 300},
    "Parallel": {"kind": "Parallel", "source": "source", "target": "target"},
    "Saved": {"kind": "Saved", "path": "saved"},
    "Hub": {"kind": "Hub", "path": "hub", "revision": "main"},
}


@pytest.mark.parametrize("name", CORPORA)
def test_parts_of_any_size_hold_the_same_documents(name, folder, monkeypatch):
    Path("a.txt").write_text(BLANKS)
    Path("windows.txt").write_bytes(BLANKS.replace("\n", "\r\n").encode())
    for side in ("source", "target"):
        Path(side).write_text("".join(f"{text.partition(',')[0]} {side}\n" for text in REVIEWS))
    for ending in ("jsonl", "parquet"):
        Path(f"a.{ending}").write_bytes(FORMATS[ending](REVIEWS))
    held_out = "text\n" + "".join(f"{text.partition(',')[0]} held out\n" for text in REVIEWS)
    for number in range(2):
        Path(f"v{number}.csv").write_text(held_out)
    Path("few").mkdir()
    for number, text in enumerate(REVIEWS):
        Path(f"few/{number:02}.txt").write_text(text)
    saved = datasets.Dataset.from_dict({"text": REVIEWS})
    saved.save_to_disk("saved")
    for number in range(4):
        saved.shard(4, number, contiguous=True).to_parquet(f"hub/train-{number:05}-of-00004.parquet")
    corpus, whole = build("corpus", {"kind": "Files", **CORPORA[name]}), documents(folder, **CORPORA[name])
    if name in ("paragraphs", "JSON lines", "Parquet", "Saved", "Hub"):
        assert [document.text.strip("\n") for document in whole] == REVIEWS
    assert len(whole) > 10
    counts = set()
    for part in (40,) if name == "Hub" else (40, 61, 128, 333, 500, 801):  # those of the hub are the set's own files
        monkeypatch.setattr(rows, "PART", part)
        snapshot = corpus.snapshot(folder)
        assert list(snapshot.documents()) == whole
        counts.add(len(snapshot.parts))
    assert max(counts) > 3
    if name == "JSON lines":
        Path("a.jsonl").write_bytes(FORMATS["jsonl"](REVIEWS) + b"{\n")
        snapshot = corpus.snapshot(folder)
        refuses(r"a\.jsonl:61: is not JSON", list, corpus.read(snapshot.parts[-1]))


def test_values_are_the_text_that_is_written_and_templates_put_them_in_their_places(folder):
    written = ["007", "1e3", "NA", "null", "2026-01-02", "", " spaced ", "x" * 200_000]
    (folder / "a.csv").write_bytes(FORMATS["csv"](written))
    assert texts(folder, files="a.csv") == [value for value in written if value]  # an empty field is not a document
    asked = [{"q": {"text": f"q{i}"}, "a": [f"a{i}", "b"] if i else []} for i in range(3)]
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    held = documents(folder, files="a.jsonl", source="ask: {q.text}", text="{a.0}")
    assert held == [Document("a1", "ask: q1"), Document("a2", "ask: q2")]
    row = {"text": "a {b}", "answers": ["x", "y"], "score": 3.75, "no": None, "large": 10**400, "b.c": "z"}
    filled = fill('{"text": "{text} {answers}", "score": {score:.1f}}', row, "text")
    assert filled == '{"text": "a {b} x, y", "score": 3.8}'
    assert fill("{large:,}", row, "text") == f"{10**400:,}"
    assert fill("{no.deeper}", row, "text") is None
    assert fill("{b.c}", row, "text") == "z"
    for template, message in {
        "{txt}": "text: the data have no field 'txt'; did you mean 'text'",
        "{text.upper}": "'text.upper' leads into str, which has no parts",
        "{score:2000000000.1f}": "has a form that is none of a number",
    }.items():
        refuses(message, fill, template, row, "text")


def test_data_are_named_by_their_file_or_folder(folder, capsys):
    (folder / "a.txt").write_text("one\ntwo\n\nthree", encoding="utf-8-sig")
    assert texts(folder, files="a.txt", document="line") == ["one", "two", "", "three"]
    for name in ("a.txt", "deep/b.md", "picture.png", ".git/c.txt"):
        (folder / "mine" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "mine" / name).write_text("\n\n".join(f"{name} {line}" for line in range(30)))
    assert {text.split()[0] for text in texts(folder, files="mine")} == {"a.txt", "deep/b.md"}
    (folder / "a.csv").write_bytes(FORMATS["csv"](REVIEWS))
    datasets.Dataset.from_dict({"text": REVIEWS}).save_to_disk(str(folder / "one"))
    (folder / "ids").mkdir()
    np.save(folder / "ids" / "a.npy", np.arange(400, dtype=np.uint16))
    (folder / "ids" / "a.ds.index").touch()
    assert prepared(capsys, "mine", *LEARNED) == prepared(capsys, "files", "data.corpus.files=mine", *LEARNED)
    (folder / "none.txt").touch()
    assert "the corpus is empty" in refused(capsys, "none.txt", *LEARNED)
    one = refused(capsys, "mine/a.txt", "data.corpus.document=file", LEARNED[0], "data.validation=0.999")
    assert "every document fell to validation: there is no document to train on" in one
    named = [prepared(capsys, name, "data.corpus.text={text}: 1", *LEARNED)["train"] for name in ("a.csv", "one")]
    assert named[0] == named[1]
    assert load("decoder", ["data=ids"])["data.kind"] == load("decoder", ["data=ids/a.npy"])["data.kind"] == "Tokens"
    assert "there is no file 'yours.csv'; give" in refused(capsys, "yours.csv")
    (folder / "mine" / "new.txt").write_text("one more")
    with pytest.raises(ScalingError, match=r"new\.txt: it has changed"):
        load("decoder", ["data=mine", *LEARNED]).build("data").open("train", folder / "data")
    words = ["a.csv", "data.validation=0.1", "data.corpus.text=[{id}] {texts}"]  # a template is text here too
    for tokenizer in ("{kind: ByteBPE, vocabulary: 300}", "{kind: Byte}"):
        error = refused(capsys, *words, f"data.tokenizer={tokenizer}")
        assert ": data.corpus.text='" in error, "the key stands once, whether or not the tokenizer was learning"
        assert "the data have no field 'texts'; did you mean 'text'?" in error


WORDS = ("some words in a row\n" * 1000).encode()


def test_bad_input_is_one_line_with_the_place(folder, capsys):
    for name, content, message in (
        ("a.png", b"\x89PNG", "it holds .png; name the files by a glob, as in in/**/*.png"),
        ("a.txt", b"x" * 3_000_001 + b"\xff\n", "a.txt:1: byte 3000001 of the line is 0xff, which is not UTF-8"),
        ("a.txt.gz", gzip.compress(b"good\n\nb\xe9d\n"), "a.txt.gz:3: byte 1 of the line is 0xe9"),
        ("a.txt.gz", gzip.compress(WORDS)[:-20], "a.txt.gz: it cannot be decompressed"),
        ("a.parquet", b"PAR1" + b"x" * 100, "a.parquet: this is not a whole Parquet file"),
        ("a.csv", b'id,text\n1,"two\nlines"\n2\n', "a.csv:4: the row has 1 field, and the first row names 2"),
        ("a.csv", b'id,text\n2,"never closed\n3,x\n', "a.csv:2: the row cannot be read: unexpected end of data"),
        ("a.csv", b'"id";"text"\n1;good\n', "; separate fields by ',', write"),
        ("a.csv", b"id,text,id\n1,good,2\n", "a.csv:1: columns of one name: id; rename one"),
    ):
        (folder / "in").mkdir()
        (folder / "in" / name).write_bytes(content)
        files = "in" if name == "a.png" else "in/*"
        assert message in refused(capsys, "files", f"data.corpus.files={files}", *LEARNED)
        shutil.rmtree(folder / "in")


def test_lines_of_two_files_are_pairs_and_files_that_do_not_fit_are_refused(folder):
    line = {"kind": "Parallel", "source": "a.de", "target": "b.en"}
    (folder / "a.de").write_bytes("eins\nzwei\u2028drei\n".encode())
    (folder / "b.en").write_bytes(b"one\r\ntwo three\r\n")
    assert documents(folder, **line) == [Document("one", "eins"), Document("two three", "zwei\u2028drei")]
    for source, stated in (
        ("1\n2\n3\n", "b.en:3: the pair has one side: this line is empty or missing"),
        ("1\n \n", "a.de:2: the pair has one side: this line is empty or missing"),
    ):
        (folder / "a.de").write_text(source)
        refuses(stated, documents, folder, **line)
    refuses(r"a\.de: it is named for training and for validation", documents, folder, files="a.de", validation="a.de")
    (folder / "b.jsonl").write_text('{"text": "x"}\n')
    refuses("files of several formats: json, text", documents, folder, files="*")


def test_a_set_that_was_saved_to_disk(folder, capsys):
    one = datasets.Dataset.from_dict({"content": REVIEWS, "label": [0, 1] * 30})
    one = one.cast_column("label", datasets.ClassLabel(names=["bad", "good"]))
    one.save_to_disk(str(folder / "one"))
    one.with_format("numpy").save_to_disk(str(folder / "formatted"))
    splits: Any = {"train": one.select(range(50)).shuffle(seed=1), "test": one.select(range(50, 60))}
    datasets.DatasetDict(splits).save_to_disk(str(folder / "both"))
    capsys.readouterr()  # the bars of writing these sets
    for name in ("one", "formatted"):
        assert texts(folder, kind="Saved", path=name, text="{content}") == REVIEWS
    assert texts(folder, kind="Saved", path="one", text="{label}")[:2] == ["bad", "good"]
    held = documents(folder, kind="Saved", path="both", text="{content}", validation="test")
    assert sorted(document.text for document in held if document.split == "train") == sorted(REVIEWS[:50])
    assert [document.text for document in held if document.split == "validation"] == REVIEWS[50:]
    saved = ["saved", "data.corpus.path=both", *LEARNED]
    assert "no such split; did you mean 'test'?" in refused(capsys, *saved, "data.corpus.split=tset")
    assert "it is trained on; name another split" in refused(capsys, *saved, "data.corpus.validation=train")
    wrong = refused(capsys, "files", "data.corpus.files=one", *LEARNED)
    assert "`save_to_disk` wrote; write data.corpus='{kind: Saved, path: one}'" in wrong
    (file,) = (folder / "one").glob("*.arrow")
    ends = np.cumsum([len(review.encode()) for review in REVIEWS[:2]], dtype="<i4").tobytes()
    file.write_bytes(file.read_bytes().replace(ends, np.full(2, 1 << 30, "<i4").tobytes()))
    assert "one could not be read further: " in refused(capsys, "saved", "data.corpus.path=one", *saved[2:])


def test_sources_of_python_are_those_of_the_snapshot(folder, monkeypatch):
    library, packages = folder / "lib", folder / "lib" / "site-packages"
    packages.mkdir(parents=True)
    (library / "one.py").write_bytes(b"# -*- coding: latin-1 -*-\none = '\xe9'\n")
    (library / "bad.py").write_bytes(b"two = '\xe9'\n")
    (packages / "three.py").write_text("three = 3\n")
    paths = {"stdlib": str(library), "purelib": str(packages), "platlib": str(packages)}
    monkeypatch.setattr(sysconfig, "get_paths", lambda: paths)
    one = "# -*- coding: latin-1 -*-\none = 'é'\n"
    assert texts(folder, kind="Python", reach="standard") == [one]
    assert {*texts(folder, kind="Python")} == {one, "three = 3\n"}
    (library / "one.py").write_text("one = 1\n")
    assert {*texts(folder, kind="Python")} == {one, "three = 3\n"}
    (file,) = folder.glob("data/snapshots/python-installed*.parquet")
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 1
    file.write_bytes(content)
    refuses("the snapshot differs from its record; remove it and python-installed-all", texts, folder, kind="Python")


def test_a_snapshot_of_sources_is_not_held_in_memory(folder, monkeypatch):
    sources = (Document(np.random.default_rng(number).bytes(10_000).hex()) for number in range(600))
    monkeypatch.setattr(corpus.Python, "_sources", lambda self: sources)
    monkeypatch.setattr(corpus, "_ROWS", 16)
    tracemalloc.start()
    build("corpus", "Python").snapshot(folder / "data")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    (file,) = folder.glob("data/snapshots/*.parquet")
    assert file.stat().st_size > 5e6
    assert peak < 3e6


ARTICLES = ("", " = One = \n", " text \n", " = = Part = = \n", " more \n", " = Two = \n", " end \n")
WHOLE = ("", " = One = \n text \n = = Part = = \n more \n", " = Two = \n end \n")
PAGE = b'{"text": "a page", "timestamp": "t", "meta": {"pile_set_name": "Pile-CC"}}\n'
# Some rows of each set as the hub has it, and the documents that come of them.
SETS = {
    "wikitext103": ([{"text": line} for line in ARTICLES], [(article, None) for article in WHOLE]),
    "openwebtext": ([{"text": "a page"}], [("a page", None)]),
    "fineweb_edu": ([{"text": "a page", "id": "1", "score": 3.5}], [("a page", None)]),
    **{f"wmt14_en_{to}": ([{"translation": {to: "un", "en": "one"}}], [("un", "one")]) for to in ("de", "fr")},
    "c4": ([{"text": "a page", "url": ""}], [("a page", None)]),
    "pile": ([], [("a page", None)]),
}
HUB = [file for file in (shipped() / "data").rglob("*.yaml") if "kind: Hub" in file.read_text()]


@pytest.mark.parametrize("name", sorted(file.stem for file in HUB))
def test_each_set_is_read_in_its_layout(name, tmp_path):
    line, home = load("decoder", [f"data={name}"])["data.corpus"], tmp_path / "set"
    splits = [line.get("split", "train"), *([line["validation"]] if line.get("validation") else [])]
    rows, expected = SETS[name]
    if name == "pile":  # nothing is said: the split is read off the folder's name
        (home / "train").mkdir(parents=True)
        for file in ("train/00.jsonl.zst", "val.jsonl.zst", "test.jsonl.zst"):
            (home / file).write_bytes(zstandard.compress(PAGE))
    else:
        hub_copy(home, {line.get("config"): dict.fromkeys(splits, datasets.Dataset.from_list(rows))})
    corpus = load("decoder", [f"data={name}", f"data.corpus.path={home}"]).build("data").corpus
    named, snapshot = ["validation", "train"] if line.get("validation") else [None], corpus.snapshot(tmp_path)
    assert list(snapshot.documents()) == [Document(*each, split=split) for split in named for each in expected]
    assert corpus.changed(snapshot.stamp) is None
    next(file for file in home.rglob("*") if file.is_file()).write_bytes(b"another")
    assert corpus.changed(snapshot.stamp) is not None


def of_hub(path, **line):
    return build("corpus", {"kind": "Hub", "path": str(path), "revision": "main", **line})


def test_a_branch_is_pinned_to_its_commit(tmp_path, monkeypatch):
    asked, commit = {}, "0123456789" * 4

    def load_dataset(path, config, **options):
        asked.update(options, path=path, config=config)
        return datasets.Dataset.from_list([{"text": "a page"}]).to_iterable_dataset()

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *_, **__: SimpleNamespace(sha=commit))
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    snapshot = of_hub("x/y").snapshot(tmp_path)
    assert [document.text for document in snapshot.documents()] == ["a page"]
    assert snapshot.stamp == {"path": "x/y", "commit": commit}
    assert asked == {"path": "x/y", "config": None, "split": "train", "revision": commit, "streaming": True}


def test_what_the_hub_or_a_set_does_not_have_and_code_that_is_not_run(tmp_path, monkeypatch):
    def refused(message, path, **line):
        refuses(message, lambda: list(of_hub(path, **line).snapshot(tmp_path).documents()))

    def unknown(*_, **__):
        response = httpx.Response(404, request=httpx.Request("GET", "http://127.0.0.1"))
        raise huggingface_hub.errors.RevisionNotFoundError("404\nInvalid rev id: nowhere", response=response)

    refused("path='x/y': no network, and the set is on the hub; without one, data=synthetic and", "x/y")
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", unknown)
    refused("revision='no': x/y has no such revision; give a commit, or main", "x/y", revision="no")
    home = tmp_path / "set"
    hub_copy(home, {"one": {"train": datasets.Dataset.from_list([{"text": "a page"}])}})
    refused("config='two': the set has no such config", home, config="two")
    refused("split='trian': the set has no such split; did you mean 'train'", home, config="one", split="trian")
    refused("it is not a pattern", home, config="one", begins="(")
    refused("the data have no field 'content'", home, config="one", begins="^=", text="{content}")
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "code.py").write_text("raise SystemExit(77)\n")
    refused("is code, which is not run", tmp_path / "code")


def test_files_are_found_by_their_own_names_and_bytes_are_text(folder, monkeypatch):
    """A link keeps its ending; `./`, `~` and brackets are parts of names; Parquet may hold text as bytes."""
    monkeypatch.setenv("HOME", str(folder))
    (folder / "blob").write_text('{"text": "linked"}\n')
    (folder / "shelf").mkdir()
    (folder / "shelf" / "a.jsonl").symlink_to(folder / "blob")
    (folder / "shelf" / "b.jsonl").symlink_to(folder / "gone")  # a glob passes over it
    (folder / "b[1].txt").write_text("bracketed")
    pandas.DataFrame({"text": [b"bytes"]}).to_parquet(folder / "c.parquet")
    found = {
        name: texts(folder, files=name) for name in ("shelf", "./shelf", "~/shelf/", "shelf/*", "b[1].txt", "c.parquet")
    }
    assert [*found.values()] == [["linked"], ["linked"], ["linked"], ["linked"], ["bracketed"], ["bytes"]]


def test_what_the_tokenizers_library_refuses_is_one_line(folder, capsys):
    (folder / "a.txt").write_text(
        "\n\n".join("".join(map(chr, range(at, at + 64))) for at in range(0x4E00, 0x5200, 64))
    )
    tokenizers.Tokenizer(tokenizers.models.WordLevel({"<eos>": 0}, unk_token="<unk>")).save("words.json")
    for line, message in (
        ("{kind: Unigram, vocabulary: 300}", "no tokenizer could be learned"),
        ("{kind: File, path: words.json}", "the tokenizer refuses a text"),
    ):
        words = ["files", "data.corpus.files=a.txt", f"data.tokenizer={line}", "data.validation=0.2"]
        assert message in refused(capsys, *words)
