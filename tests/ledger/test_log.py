"""What a log tells is what was written to it, however it was torn."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from scaling.errors import DISK, ScalingError
from scaling.ledger.document import Log, entries, last_entry, merged

ENTRIES = [{"kind": "train", "step": step, "loss": 1 / step} for step in range(1, 6)]


def _written(path: Path, written: list[dict[str, object]]) -> Path:
    log = Log(path)
    for entry in written:
        log.write(entry)
    log.close()
    return path


def test_a_tail_torn_at_any_byte_is_ignored(tmp_path: Path) -> None:
    path = _written(tmp_path / "log.jsonl", ENTRIES)
    content = path.read_bytes()
    for length in range(len(content) + 1):
        path.write_bytes(content[:length])
        # A line that lacks only its line end is whole: its checksum says so.
        whole = (
            content[: length + 1].count(b"\n")
            if content[length : length + 1] == b"\n"
            else content[:length].count(b"\n")
        )
        assert list(entries(path)) == ENTRIES[:whole]


def test_a_flipped_bit_costs_its_line_alone(tmp_path: Path) -> None:
    path = _written(tmp_path / "log.jsonl", ENTRIES)
    content = path.read_bytes()
    chance = random.Random(0)
    for _ in range(300):
        flipped = bytearray(content)
        place = chance.randrange(len(content))
        flipped[place] ^= 1 << chance.randrange(8)
        path.write_bytes(flipped)
        found = list(entries(path))
        assert all(entry in ENTRIES for entry in found)
        assert len(found) >= 3, "a flipped line end costs the two lines that it parted"


def test_no_log_has_no_entries(tmp_path: Path) -> None:
    assert list(entries(tmp_path / "none")) == []
    assert last_entry(tmp_path / "none", "loss") is None


def test_the_last_entry_with_a_key(tmp_path: Path) -> None:
    path = _written(tmp_path / "log.jsonl", [*ENTRIES, {"kind": "evaluate", "step": 5}])
    assert last_entry(path, "loss") == ENTRIES[-1]
    assert last_entry(path, "accuracy") is None
    with path.open("ab") as file:
        file.write(b'{"kind":"train","loss":')
    assert last_entry(path, "loss") == ENTRIES[-1]


def test_a_write_that_failed_midway_costs_no_later_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, write = tmp_path / "log.jsonl", os.write
    log = Log(path)
    log.write(ENTRIES[0])

    def half_then_full(handle: int, content: bytes) -> int:
        if len(content) < 12:
            raise OSError(28, "No space left on device")
        return write(handle, content[: len(content) // 2])

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", half_then_full)
        with pytest.raises(ScalingError) as full:
            log.write(ENTRIES[1])
    assert full.value.code == DISK
    log.write(ENTRIES[2])
    log.close()
    assert list(entries(path)) == [ENTRIES[0], ENTRIES[2]]


def test_a_repeated_step_is_told_once_by_its_last_attempt(tmp_path: Path) -> None:
    first = _written(tmp_path / "1", [{"kind": "resume"}, *ENTRIES[:4], {"kind": "evaluate", "step": 2, "loss": 9.0}])
    second = _written(tmp_path / "2", [{"kind": "resume"}, {**ENTRIES[2], "again": True}, *ENTRIES[3:]])
    told = merged([first, second])
    assert [entry["step"] for entry in told if entry["kind"] == "train"] == [1, 2, 3, 4, 5]
    assert [entry for entry in told if "again" in entry] == [{**ENTRIES[2], "again": True}]
    assert {"kind": "evaluate", "step": 2, "loss": 9.0} in told
