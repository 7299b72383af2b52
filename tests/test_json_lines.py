"""JSON lines: what is not a record a line is one line with its place, for whoever reads the file."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from scaling.base import atomic
from scaling.config.schema import build
from scaling.data import rows as row_files
from tests.command_line import refused, refuses

GOOD = b'{"text": "It rains", "label": "a", "N": 1, "D": 2, "loss": 3}\n'
BAD = {
    "null": (GOOD + b"null\n", ":2: is not a record"),
    "half": (GOOD + b'{"text": "bad\n', ":2: is not JSON"),
    "NaN": (GOOD + b'{"text": NaN}\n', ":2: is not JSON (NaN is none of its values; write null)"),
    "UTF-16": (GOOD.decode().encode("utf-16"), ":1: is UTF-16"),
    "Latin-1": (GOOD + b'{"text": "caf\xe9"}\n', ":2: byte 13 of the line is 0xe9, which is not UTF-8"),
    "deep and closed": (b'{"text": ' + b"[" * 400 + b"]" * 400 + b"}\n", ":1: is nested more than 100 deep"),
    "digits": (GOOD + b'{"text": "b", "N": ' + b"1" * 5000 + b"}\n", ":2: is not JSON (a number has too many digits)"),
    "half a pair": (GOOD + b'{"text": "\\ud83d"}\n', ":2: holds half a surrogate pair"),
}
VERBS = {
    "text": "data prepare files data.corpus.files=a.jsonl data.tokenizer=Byte data.validation=0",
    "task": "data prepare trec data.files.train=a.jsonl data.labels=[a,b] data.text={text} data.tokenizer=Byte",
    "points": "fit a.jsonl",
}


@pytest.mark.parametrize(
    ("kind", "verb"),
    [*((kind, "text") for kind in BAD), *((kind, verb) for kind in ("null", "half") for verb in ("task", "points"))],
)
def test_what_is_no_record_is_one_line(kind, verb, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content, stated = BAD[kind]
    Path("a.jsonl").write_bytes(content)
    output = refused(capsys, *VERBS[verb].split())
    assert f"a.jsonl{stated}" in output
    assert "; " in output  # a fix


@pytest.mark.parametrize("verb", VERBS)
def test_a_file_without_fields_is_one_line_and_a_pipe_is_not_waited_for(verb, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = Path("a.jsonl")
    file.write_text({"text": "", "task": "\n\n", "points": "{}\n{}\n"}[verb])
    refused(capsys, *VERBS[verb].split())
    file.unlink()
    os.mkfifo(file)
    output = refused(capsys, *VERBS[verb].split())
    assert "is not a regular file; write its content to a file" in output
    assert "a.jsonl" in output


def test_a_copy_of_a_set_is_refused_before_datasets_reads_it(tmp_path):
    (tmp_path / "train.jsonl").write_bytes(b"null\n")
    corpus = build("corpus", {"kind": "Hub", "path": str(tmp_path), "revision": "main"})
    refuses("train.jsonl:1: is not a record", lambda: list(corpus.snapshot(tmp_path).documents()))


def test_a_json_file_may_be_one_array(tmp_path):
    file = tmp_path / "a.json"
    file.write_text(json.dumps([{"text": "a"}, {"n": 1}], indent=1))
    assert list(row_files.read(file)) == [{"text": "a", "n": None}, {"text": None, "n": 1}]
    file.write_text('["a"]')
    assert list(row_files.read(file)) == [{"text": "a"}]
    for text, said in {
        "[{}, null]": "a.json: element 2 of the array is not a record",
        "[1,\n 2,\n": "a.json:3: is not JSON",
        "[" * 100_000: "a.json: is nested more than 100 deep",
    }.items():
        file.write_text(text)
        refuses(said, list, row_files.read(file))


@pytest.mark.parametrize("layout", ["squad", "dialogue"])
def test_layouts_of_json_are_one_line_too(layout, tmp_path):
    for content in (b"null", b'{"data": [null]}', b"[" * 100_000, b'{"turns": null}', b"\xff\xfe"):
        (tmp_path / "a.json").write_bytes(content)
        refuses(r"a\.json", list, build("layout", layout).rows([tmp_path / "a.json"], None, "csv"))


def test_a_pipe_or_a_device_is_written_to_and_not_replaced(tmp_path):
    os.mkfifo(pipe := tmp_path / "pipe")
    with ThreadPoolExecutor() as pool:
        read = pool.submit(pipe.read_text)
        atomic.write(pipe, "all of it")
        assert read.result() == "all of it"
    assert pipe.is_fifo()
