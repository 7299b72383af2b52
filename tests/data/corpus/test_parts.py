"""Parts: wherever a corpus is cut into them, they hold each of its documents once, in order."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pyarrow
import pyarrow.parquet
import pytest

from scaling.base.errors import ScalingError
from scaling.config.schema import build
from scaling.data import rows

TEXTS = [f"text {number} of wörds" + "\nand a line" * (number % 4) for number in range(40)]


def paragraphs(folder: Path) -> dict[str, Any]:
    (folder / "a.txt").write_text("\n\n" + "\n\n\n".join(TEXTS[:20]) + "\n\n\n\n\n" + "\n\n".join(TEXTS[20:]))
    return {"kind": "Files", "files": str(folder / "a.txt")}


def windows_line_ends(folder: Path) -> dict[str, Any]:
    line = paragraphs(folder)
    (folder / "a.txt").write_bytes((folder / "a.txt").read_bytes().replace(b"\n", b"\r\n"))
    return line


def lines(folder: Path) -> dict[str, Any]:
    return {**paragraphs(folder), "document": "line"}


def json_lines(folder: Path) -> dict[str, Any]:
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in TEXTS))
    return {"kind": "Files", "files": str(folder / "a.jsonl")}


def parquet(folder: Path) -> dict[str, Any]:
    pyarrow.parquet.write_table(pyarrow.table({"text": TEXTS}), folder / "a.parquet", row_group_size=3)
    return {"kind": "Files", "files": str(folder / "a.parquet")}


def several(folder: Path) -> dict[str, Any]:
    for number, text in enumerate(TEXTS):
        (folder / f"{number:02}.txt").write_text(text)
    return {"kind": "Files", "files": str(folder), "document": "file", "limit": 500}


def held_out(folder: Path) -> dict[str, Any]:
    for number in (1, 2):
        (folder / f"v{number}.csv").write_text("text\n" + "".join(f"{text[:9]} {number}\n" for text in TEXTS))
    return {**json_lines(folder), "validation": str(folder / "v*.csv"), "limit": 300}


def parallel(folder: Path) -> dict[str, Any]:
    for side in ("source", "target"):
        (folder / side).write_text("".join(f"{text.splitlines()[0]} {side}\n" for text in TEXTS))
    return {"kind": "Parallel", "source": str(folder / "source"), "target": str(folder / "target")}


def saved(folder: Path) -> dict[str, Any]:
    datasets.Dataset.from_dict({"text": TEXTS}).save_to_disk(str(folder / "set"))
    return {"kind": "Saved", "path": str(folder / "set")}


def hub(folder: Path) -> dict[str, Any]:
    for number in range(4):
        table = datasets.Dataset.from_dict({"text": TEXTS[10 * number : 10 * number + 10]})
        table.to_parquet(folder / "set" / f"train-{number:05}-of-00004.parquet")
    return {"kind": "Hub", "path": str(folder / "set"), "revision": "main"}


CORPORA = [
    paragraphs, windows_line_ends, lines, json_lines, parquet, several, held_out, parallel, saved, hub
]  # fmt: skip


@pytest.mark.parametrize("made", CORPORA)
def test_parts_of_any_size_hold_the_same_documents(
    made: Callable[[Path], dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    corpus = build("corpus", made(folder))
    whole = list(corpus.snapshot(tmp_path).documents())
    if made in (paragraphs, json_lines, parquet, saved, hub):
        assert [document.text.strip("\n") for document in whole] == TEXTS
    assert len(whole) > 10
    counts = set()
    for part in (40,) if made is hub else (40, 61, 128, 333, 500, 801):  # those of the hub are the set's own files
        monkeypatch.setattr(rows, "PART", part)
        snapshot = corpus.snapshot(tmp_path)
        assert list(snapshot.documents()) == whole
        counts.add(len(snapshot.parts))
    assert max(counts) > 3


def test_a_mistake_in_a_part_has_its_line_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = json_lines(tmp_path)
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write("{\n")
    monkeypatch.setattr(rows, "PART", 200)
    snapshot = build("corpus", line).snapshot(tmp_path)
    with pytest.raises(ScalingError, match=r"a\.jsonl:41: is not JSON"):
        list(snapshot.corpus.read(snapshot.parts[-1]))
