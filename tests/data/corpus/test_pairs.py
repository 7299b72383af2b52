"""Corpora of pairs: two files side by side, message catalogues, functions and their docstrings."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest

from scaling.data.corpus.pairs import functions
from scaling.errors import ScalingError
from scaling.schema import build


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
        ("1\nä\n".encode("latin-1"), b"1\n2\n", "a.de:2: the line is not UTF-8: byte 0xe4"),
    ],
    ids=["more targets", "more sources", "empty source", "empty target", "latin-1"],
)
def test_bad_pairs_are_one_line_with_the_file_and_its_line(tmp_path, source, target, stated):
    with pytest.raises(ScalingError) as error:
        parallel(tmp_path, source, target)
    assert stated in str(error.value)
    assert "\n" not in str(error.value)


def catalogue(file: Path, entries: dict[bytes, bytes], order: str = "<") -> None:
    """A `.mo` file, laid out as GNU gettext's manual states (section 10.3)."""
    file.parent.mkdir(parents=True, exist_ok=True)
    head, texts, tables = 28, b"", [b"", b""]
    begin = head + 16 * len(entries)
    for side in (0, 1):
        for entry in sorted(entries.items()):
            tables[side] += struct.pack(f"{order}2I", len(entry[side]), begin + len(texts))
            texts += entry[side] + b"\0"
    numbers = (0x950412DE, 0, len(entries), head, head + 8 * len(entries), 0, 0)
    file.write_bytes(struct.pack(f"{order}7I", *numbers) + tables[0] + tables[1] + texts)


HEADER = {b"": b"Content-Type: text/plain; charset=UTF-8\n"}


def gettext(folder: Path, **line):
    corpus = build("corpus", {"kind": "Gettext", "folder": str(folder), **line})
    return [(d.source, d.text, d.split) for d in corpus.snapshot(folder).documents()]


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_catalogue_gives_messages_and_translations(tmp_path, order):
    entries = {
        b"Open file": "Datei öffnen".encode(),
        b"menu\x04Close  it\n": b"Schliessen",
        b"%d file\0%d files": b"%d Datei\0%d Dateien",
        b"untranslated": b"",
    }
    catalogue(tmp_path / "de" / "LC_MESSAGES" / "app.mo", HEADER | entries, order)
    assert set(gettext(tmp_path, held_out=0.0)) == {
        ("Open file", "Datei öffnen", "train"),
        ("Close it", "Schliessen", "train"),
        ("%d file", "%d Datei", "train"),
    }


def test_a_catalogue_in_another_encoding_is_read_by_its_header(tmp_path):
    own = {b"": b"Content-Type: text/plain; charset=ISO-8859-1\n", b"over": "über".encode("latin-1")}
    catalogue(tmp_path / "de" / "LC_MESSAGES" / "app.mo", own)
    assert gettext(tmp_path, held_out=0.0) == [("over", "über", "train")]


def test_whole_catalogues_are_held_out_without_what_is_trained_on(tmp_path):
    for number in range(40):
        entries = {b"shared": b"geteilt", f"own {number}".encode(): f"eigen {number}".encode()}
        catalogue(tmp_path / "de" / "LC_MESSAGES" / f"app{number}.mo", HEADER | entries)
    rows = gettext(tmp_path, held_out=0.3)
    splits: dict[str, set[str]] = {
        split: {s for s, _, own in rows if own == split} for split in ("train", "validation")
    }
    assert not splits["train"] & splits["validation"]
    assert "shared" in splits["train"]
    assert 4 <= len(splits["validation"]) <= 20
    assert rows == gettext(tmp_path, held_out=0.3)


@pytest.mark.parametrize(
    ("line", "stated"),
    [
        ({"language": "eo"}, "language='eo': no catalogue in"),
        ({"folder": "/nowhere"}, "folder='/nowhere': no message catalogues in /nowhere; install programs with"),
    ],
)
def test_what_a_machine_lacks_is_one_line(tmp_path, line, stated):
    catalogue(tmp_path / "de" / "LC_MESSAGES" / "app.mo", HEADER | {b"a": b"b"})
    with pytest.raises(ScalingError) as error:
        gettext(line.pop("folder", tmp_path), **line)
    assert stated in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [b"", b"no catalogue at all, but some text of a reasonable length"])
def test_a_broken_catalogue_is_named(tmp_path, content):
    file = tmp_path / "de" / "LC_MESSAGES" / "app.mo"
    catalogue(file, HEADER)
    file.write_bytes(content)
    with pytest.raises(ScalingError, match=r"app\.mo: it is no message catalogue"):
        gettext(tmp_path)


def test_a_function_is_answered_by_the_first_paragraph_of_its_docstring():
    text = (
        'def f(x):\n    """Add one\n    to x.\n\n    More."""\n    return x + 1\n'
        'def g():\n    """Only this."""\n'
        "def h():\n    return 2\n"
    )
    assert list(functions(text)) == [("def f(x):\n    return x + 1", "Add one to x.")]
    assert list(functions("def broken(:\n")) == []


def test_a_task_reads_two_files_and_batches_of_as_many_tokens(tmp_path):
    from scaling.data.batches import training
    from scaling.data.plan import BatchSize
    from scaling.data.source import Vocabulary

    source = "".join(f"{'ein ' * (n % 7 + 1)}wort {n}\n" for n in range(200))
    target = "".join(f"{'one ' * (n % 7 + 1)}word {n}\n" for n in range(200))
    for name, text in (("train.de.gz", source), ("train.en.gz", target)):
        (tmp_path / name).write_bytes(gzip.compress(text.encode()))
    task = build(
        "data",
        {
            "kind": "Task",
            "answer": "text",
            "text": "{de}",
            "label": "{en}",
            "metric": "BLEU",
            "layout": "parallel",
            "columns": ["de", "en"],
            "files": {"train": [str(tmp_path / "train.de.gz"), str(tmp_path / "train.en.gz")]},
            "tokenizer": {"kind": "Byte"},
        },
    )
    examples = task.open("train", tmp_path)
    objective = build("objective", "Answer", Vocabulary.of(examples), 64, "encoder_decoder")
    batches = training(examples, objective, BatchSize.of({"tokens": 256}), 0)
    seen: list[int] = []
    while batches.passes(len(seen)) < 1:
        batch = batches.batch(len(seen))
        assert batch.source is not None
        assert batch.tokens.numel() <= 256
        assert batch.source.numel() <= 256
        seen.append(batch.rows)
    assert sum(seen) == len(examples.items)
    assert len(set(seen)) > 1


def test_a_parallel_split_is_two_files(tmp_path):
    (tmp_path / "train.tsv").write_text("a\tb\n")
    line = {"kind": "Task", "answer": "text", "text": "{source}", "label": "{target}", "metric": "BLEU"}
    line |= {"layout": "parallel", "files": {"train": str(tmp_path / "train.tsv")}, "tokenizer": {"kind": "Byte"}}
    with pytest.raises(ScalingError, match="a parallel split is in two files, and it names 1"):
        build("data", line).open("train", tmp_path)


def test_windows_are_not_batched_by_tokens():
    from scaling.config import load
    from scaling.training.experiment import assemble

    with pytest.raises(ScalingError, match="windows are all of one length; give the number of windows"):
        assemble(load("decoder", ["size=tiny", "train.batch={tokens: 512}"]))
