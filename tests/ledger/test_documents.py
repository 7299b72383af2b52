"""A document or an entry that comes back is the one that was written; any other is refused, passed over or named."""

from __future__ import annotations

import copy
import errno
import json
import math
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.cli import main
from scaling.errors import DISK, ScalingError
from scaling.ledger import Ledger
from scaling.ledger.document import Damaged, Log, entries, publish, read, seal

ENTRIES = [{"kind": "train", "step": step, "loss": 1 / step} for step in range(1, 6)]
LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text('aé\n"\\')
)
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))
KEYS = st.text().filter(lambda key: key not in ("sha256", "crc"))


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


@given(st.dictionaries(KEYS, VALUES, min_size=1, max_size=4))
def test_what_is_written_comes_back_and_is_plain_json_to_others(path, document):
    path.write_bytes(seal(document))
    assert read(path) == document
    assert json.loads(path.read_bytes()).keys() == {*document, "sha256"}
    assert list(entries(written(path, [document]))) == [document]
    assert json.loads(path.read_bytes()).keys() == {*document, "crc"}


def test_numbers_that_json_lacks(path):
    path.write_bytes(seal({"loss": math.nan, "norms": [math.inf, {"least": -math.inf}]}))
    found = read(path) or {}
    assert math.isnan(found["loss"])
    assert found["norms"] == [math.inf, {"least": -math.inf}]
    json.loads(path.read_bytes(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_every_flipped_bit_and_every_truncation_of_a_document_is_found(path):
    content = seal({"loss": 2.25, "outcome": "finished"})
    for place in range(len(content)):
        for bit in range(-1, 8):
            flipped = bytearray(content[: None if bit >= 0 else place])
            if bit >= 0:
                flipped[place] ^= 1 << bit
            path.write_bytes(flipped)
            with pytest.raises(Damaged):
                read(path)


@pytest.mark.parametrize("error", [FileExistsError(errno.EEXIST, "exists"), OSError(errno.EIO, "lost")])
@pytest.mark.parametrize("is_linked", [True, False])
def test_over_nfs_a_reply_may_get_lost(error, is_linked, tmp_path, monkeypatch):
    """A repeated request finds its own link. A failure that is no rival is raised, and leaves nothing."""
    link = os.link

    def lost(source: Path, target: Path) -> None:
        if is_linked:
            link(source, target)
        raise error

    monkeypatch.setattr(os, "link", lost)
    if is_linked:
        assert publish(tmp_path / "file", b"mine")
    elif error.errno == errno.EIO:
        with pytest.raises(ScalingError) as raised:
            publish(tmp_path / "file", b"mine")
        assert raised.value.code == DISK
        assert list(tmp_path.iterdir()) == []


# Logs


def test_a_tail_torn_at_any_byte_costs_its_line_alone(path):
    content = written(path, ENTRIES).read_bytes()
    for length in range(len(content) + 1):
        path.write_bytes(content[:length])
        whole = content[: length + 1].count(b"\n")  # a line that lacks only its line end is whole
        assert list(entries(path)) == ENTRIES[:whole]
        log = Log(path)
        log.write({"kind": "after"})
        log.close()
        assert list(entries(path)) == [*ENTRIES[:whole], {"kind": "after"}]


def test_a_flipped_bit_costs_its_line_alone(path):
    content, chance = written(path, ENTRIES).read_bytes(), random.Random(0)
    for _ in range(300):
        flipped = bytearray(content)
        flipped[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        path.write_bytes(flipped)
        found = list(entries(path))
        assert all(entry in ENTRIES for entry in found)
        assert len(found) >= 3, "a flipped line end costs the two lines that it parted"


def test_a_write_that_failed_midway_costs_no_later_line(path, monkeypatch):
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


# Documents of another form, under a valid checksum or a wrong one: a command ends well, or names the file in one line

SPEC = {
    "model": {"kind": "Decoder"},
    "size": {"width": 8, "layers": 1},
    "data": {"kind": "Synthetic", "fingerprint": "f"},
    "optimizer": {"kind": "AdamW", "lr": 0.003},
    "train": {"batch": 4},
    "trainer": {"max_steps": 12},
}
RESULT = {"loss": 2.1, "step": 12, "tokens": 768, "N": {"non_embedding": 856, "total": 1000}, "C": {"exact": 5345280.0}}
RESULT["circumstances"] = {"device": "cpu", "ranks": 1, "seconds": 0.2, "versions": {"torch": "2"}}
STUDY = {"name": "s", "question": "q", "base": "decoder", "set": {}, "grid": {"seed": [0, 1]}}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger with a study of a finished run and one that failed."""
    root = tmp_path_factory.mktemp("forms") / "runs"
    ledger = Ledger.create(root)
    runs = [ledger.add({**SPEC, "seed": seed}) for seed in (0, 1)]
    with ledger.claim(runs[0]) or pytest.fail("no claim") as attempt:
        attempt.finish("finished", RESULT)
    with ledger.claim(runs[1]) or pytest.fail("no claim") as attempt:
        attempt.end("failed", "ValueError: broken", ValueError("broken"))
    point = {"N": 856, "D": 768, "C": 1e6}
    entry = {"overrides": [], "held_out": False, "steps": 12, "flops": 1e6, "trunk": None, "point": point}
    plan = [{"run": run, "name": f"seed={seed}", **entry} for seed, run in enumerate(runs)]
    ledger.save_plan("s", {"study": STUDY, "runs": plan})
    return root


def parts(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in inside:
        yield (*place, key)
        yield from parts(inner, (*place, key))


def check(root: Path, capsys: pytest.CaptureFixture[str], *commands: str) -> str:
    """What commands print on a ledger; each ends well, or refuses by one line."""
    run, printed = next(root.glob("store/*")).name, ""
    for command in commands or ("runs", "runs s", f"show {run}", "gc", "runs --json"):
        code = main([*command.split(), f"runs={root}"])
        error = capsys.readouterr().err
        assert code in (0, 2), error
        assert "Traceback" not in error
        assert code == 0 or error.splitlines()[-1].startswith("scaling: "), error
        printed += error
    return printed


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8))])
def test_a_sealed_document_of_another_form_is_one_line(seed, root, tmp_path, capsys):
    """A part of a document is gone, or of another type."""
    values = [..., None, {}, [1], {"a": 1}, "x", -1, 1.5, 10**30, math.nan]
    cases = [
        (path.relative_to(root), place, value)
        for path in sorted(root.rglob("*.json"))
        for place in parts(read(path))
        for value in values
    ]
    for path, place, value in random.Random(seed).sample(cases, 20):
        shutil.rmtree(tmp_path / "runs", ignore_errors=True)
        shutil.copytree(root, tmp_path / "runs")
        document = copy.deepcopy(read(root / path)) or {}
        inner: Any = document
        for key in place[:-1]:
            inner = inner[key]
        if value is ...:
            del inner[place[-1]]
        else:
            inner[place[-1]] = value
        (tmp_path / "runs" / path).write_bytes(seal(document))
        check(tmp_path / "runs", capsys)


CHANGES = {
    "empty": lambda content: b"",
    "cut off": lambda content: content[: len(content) // 2],
    "a flipped bit": lambda content: content[:40] + bytes([content[40] ^ 1]) + content[41:],
    "edited by hand": lambda content: content.replace(b'"seed": ', b'"seed": 1').replace(b"2.1", b"1.9"),
    "no JSON": lambda content: b"[" * 100_000,
    "a log's": lambda content: b'{"kind":"start"}' * 3,
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("file", ["spec.json", "result.json", "plan.json", "log.jsonl"])
def test_a_file_that_was_changed_is_one_line_and_never_taken_for_a_whole_one(file, change, root, tmp_path, capsys):
    shutil.copytree(root, tmp_path / "runs")
    ledger = Ledger.open(tmp_path / "runs")
    before = {run: ledger.result(run) for run in ledger.runs()}
    for path in ledger.root.rglob(file):
        path.write_bytes(CHANGES[change](path.read_bytes()))
    printed = check(ledger.root, capsys)
    after = {run: ledger.result(run) for run in before}
    assert after == (dict.fromkeys(before) if file == "result.json" else before)
    assert ("the plan is damaged" in printed) == (file == "plan.json")


def test_a_damaged_plan_is_named_with_its_key(root, tmp_path, capsys):
    shutil.copytree(root, tmp_path / "runs")
    path = tmp_path / "runs" / "studies" / "s" / "plan.json"
    plan = read(path) or {}
    plan["runs"][0]["overrides"] = [{"a": 1}]
    path.write_bytes(seal(plan))
    message = f"{path}: the plan is damaged: runs.*.overrides.* is of another form"
    assert message in check(tmp_path / "runs", capsys, "report s")
