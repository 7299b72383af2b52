"""Parts: wherever a corpus is cut into them, they hold each of its documents once, in order."""

import json
from pathlib import Path
from typing import Any

import datasets
import pytest

from scaling.base.errors import ScalingError
from scaling.config.schema import build
from scaling.data import rows

TEXTS = [f"text {number} of wörds" + "\nand a line" * (number % 4) for number in range(40)]
PARAGRAPHS = "\n\n" + "\n\n\n".join(TEXTS[:20]) + "\n\n\n\n\n" + "\n\n".join(TEXTS[20:])
JSON_LINES = "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in TEXTS)
HELD_OUT = "text\n" + "".join(f"{text[:9]} held out\n" for text in TEXTS)
SIDES = {side: "".join(f"{text.splitlines()[0]} {side}\n" for text in TEXTS) for side in ("source", "target")}
FEW = {f"{number:02}.txt": text for number, text in enumerate(TEXTS)}

# Of each corpus its files and its line.
CORPORA: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "paragraphs": ({"a.txt": PARAGRAPHS}, {"files": "a.txt"}),
    "line ends of Windows": ({"a.txt": PARAGRAPHS.replace("\n", "\r\n")}, {"files": "a.txt"}),
    "lines": ({"a.txt": PARAGRAPHS}, {"files": "a.txt", "document": "line"}),
    "JSON lines": ({"a.jsonl": JSON_LINES}, {"files": "a.jsonl"}),
    "Parquet": ({}, {"files": "a.parquet"}),
    "several": (FEW, {"files": "*.txt", "document": "file", "limit": 500}),
    "held out": (
        {"a.jsonl": JSON_LINES, "v1.csv": HELD_OUT, "v2.csv": HELD_OUT},
        {"files": "a.jsonl", "validation": "v*.csv", "limit": 300},
    ),
    "Parallel": (SIDES, {"kind": "Parallel", "source": "source", "target": "target"}),
    "Saved": ({}, {"kind": "Saved", "path": "saved"}),
    "Hub": ({}, {"kind": "Hub", "path": "hub", "revision": "main"}),
}


@pytest.mark.parametrize("name", CORPORA)
def test_parts_of_any_size_hold_the_same_documents(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files, line = CORPORA[name]
    for file, content in files.items():
        Path(file).write_bytes(content.encode())
    table = datasets.Dataset.from_dict({"text": TEXTS})
    table.to_parquet("a.parquet", batch_size=3)
    table.save_to_disk("saved")
    for number in range(4):
        table.shard(4, number, contiguous=True).to_parquet(f"hub/train-{number:05}-of-00004.parquet")
    corpus = build("corpus", {"kind": "Files", **line})
    whole = list(corpus.snapshot(tmp_path).documents())
    if name in ("paragraphs", "JSON lines", "Parquet", "Saved", "Hub"):
        assert [document.text.strip("\n") for document in whole] == TEXTS
    assert len(whole) > 10
    counts = set()
    for part in (40,) if name == "Hub" else (40, 61, 128, 333, 500, 801):  # those of the hub are the set's own files
        monkeypatch.setattr(rows, "PART", part)
        snapshot = corpus.snapshot(tmp_path)
        assert list(snapshot.documents()) == whole
        counts.add(len(snapshot.parts))
    assert max(counts) > 3
    if name == "JSON lines":
        Path("a.jsonl").write_text(JSON_LINES + "{\n")
        snapshot = corpus.snapshot(tmp_path)
        with pytest.raises(ScalingError, match=r"a\.jsonl:41: is not JSON"):
            list(corpus.read(snapshot.parts[-1]))
