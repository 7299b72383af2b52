"""A document or an entry that came back is the one that was written; any other is refused or passed over."""

from __future__ import annotations

import errno
import json
import math
import os
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.errors import DISK, ScalingError
from scaling.ledger.document import Damaged, Log, entries, publish, read, seal

ENTRIES = [{"kind": "train", "step": step, "loss": 1 / step} for step in range(1, 6)]
DOCUMENTS = st.dictionaries(
    st.text().filter(lambda key: key not in ("sha256", "crc")),
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text('aé\n"\\'),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=8,
    ),
    min_size=1,
    max_size=4,
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("documents") / "document"


def written(path: Path, log: list[dict[str, Any]]) -> Path:
    path.unlink(missing_ok=True)
    writer = Log(path)
    for entry in log:
        writer.write(entry)
    writer.close()
    return path


@given(DOCUMENTS)
def test_what_is_written_comes_back_and_is_plain_json_to_others(path: Path, document: dict[str, Any]) -> None:
    path.write_bytes(seal(document))
    found = read(path)
    assert found == document
    assert json.loads(path.read_bytes()).keys() == {*document, "sha256"}
    assert list(entries(written(path, [document]))) == [document]
    assert json.loads(path.read_bytes()).keys() == {*document, "crc"}


def test_every_flipped_bit_and_every_truncation_of_a_document_is_found(path: Path) -> None:
    content = seal({"loss": 2.25, "outcome": "finished"})
    for place in range(len(content)):
        for bit in range(-1, 8):
            flipped = bytearray(content[: None if bit >= 0 else place])
            if bit >= 0:
                flipped[place] ^= 1 << bit
            path.write_bytes(flipped)
            with pytest.raises(Damaged):
                read(path)


def test_numbers_that_json_lacks(path: Path) -> None:
    path.write_bytes(seal({"loss": math.nan, "norms": [math.inf, {"least": -math.inf}]}))
    found = read(path)
    assert found is not None
    assert math.isnan(found["loss"])
    assert found["norms"] == [math.inf, {"least": -math.inf}]
    json.loads(path.read_bytes(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


@pytest.mark.parametrize(
    ("document", "key", "fits"),
    [
        ({"a": {"b": 1}}, "a.b", True),
        ({"a": {"b": "x"}}, "a.b", False),
        ({"a": {}}, "a.b", False),
        ({"a": 1}, "a.b", False),
        ({"a": {}}, "a.b?", True),
        ({"a": None}, "a?.b", True),
        ({"a": [{"b": 1}, {"b": None}]}, "a.*.b", False),
        ({"a": {"x": 1, "y": 2.5}}, "a.*", True),
    ],
)
def test_a_key_of_another_type_is_damage_and_is_named(path: Path, document: Any, key: str, fits: bool) -> None:
    path.write_bytes(seal(document))
    if fits:
        assert read(path, {key: (int, float)}) == document
    else:
        with pytest.raises(Damaged, match=f"{path}: .* is of another form"):
            read(path, {key: (int, float)})


# Publication: one maker for each file, with hard links, without them, and with replies that get lost.


def refused(*_: object) -> None:
    raise PermissionError(errno.EPERM, "no hard links here")


@pytest.mark.parametrize("error", [FileExistsError(errno.EEXIST, "exists"), OSError(errno.EIO, "lost")])
def test_a_reply_that_was_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    """Over NFS a repeated request finds its own link and reports that it exists."""
    link = os.link

    def lost(source: Path, target: Path) -> None:
        link(source, target)
        raise error

    monkeypatch.setattr(os, "link", lost)
    assert publish(tmp_path / "file", b"mine")


def test_a_failure_that_is_no_rival_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "link", fail)
    with pytest.raises(ScalingError) as raised:
        publish(tmp_path / "file", b"mine")
    assert raised.value.code == DISK
    assert list(tmp_path.iterdir()) == []


# Logs


def test_a_tail_torn_at_any_byte_costs_its_line_alone(path: Path) -> None:
    content = written(path, ENTRIES).read_bytes()
    for length in range(len(content) + 1):
        path.write_bytes(content[:length])
        whole = content[: length + 1].count(b"\n")  # a line that lacks only its line end is whole
        assert list(entries(path)) == ENTRIES[:whole]
        log = Log(path)
        log.write({"kind": "after"})
        log.close()
        assert list(entries(path)) == [*ENTRIES[:whole], {"kind": "after"}]


def test_a_flipped_bit_costs_its_line_alone(path: Path) -> None:
    content, chance = written(path, ENTRIES).read_bytes(), random.Random(0)
    for _ in range(300):
        flipped = bytearray(content)
        flipped[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        path.write_bytes(flipped)
        found = list(entries(path))
        assert all(entry in ENTRIES for entry in found)
        assert len(found) >= 3, "a flipped line end costs the two lines that it parted"


def test_a_write_that_failed_midway_costs_no_later_line(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, log = os.write, Log(written(path, ENTRIES[:1]))

    def half_then_full(handle: int, content: bytes) -> int:
        if len(content) < 12:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(handle, content[: len(content) // 2])

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", half_then_full)
        with pytest.raises(ScalingError) as full:
            log.write(ENTRIES[1])
    assert full.value.code == DISK
    log.write(ENTRIES[2])
    log.close()
    assert list(entries(path)) == [ENTRIES[0], ENTRIES[2]]
