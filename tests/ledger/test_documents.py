"""A document or an entry that comes back is the one that was written; any other is refused, passed over or named."""

import errno
import json
import math
import os
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling.base.errors import DISK, ScalingError
from scaling.ledger import Ledger
from scaling.ledger.document import Damaged, Log, entries, publish, read, seal
from scaling.verbs.command_line import main
from tests.ledger.conftest import claimed

ENTRIES = [{"kind": "train", "step": step, "loss": 1 / step} for step in range(1, 6)]
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
LEAVES = st.none() | st.booleans() | NUMBERS | st.text('aé\n"\\')
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
    return path


@settings(max_examples=30)
@given(st.dictionaries(KEYS, VALUES, min_size=1, max_size=4))
def test_what_is_written_comes_back_and_is_plain_json_to_others(path, document):
    document |= {"numbers that JSON lacks": [math.inf, {"least": -math.inf}]}
    path.write_bytes(seal(document))
    assert read(path) == document
    assert list(entries(written(path, [document]))) == [document]
    found = json.loads(path.read_bytes(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert found.keys() == {*document, "crc"}
    path.write_bytes(seal({"loss": math.nan}))
    assert math.isnan((read(path) or {})["loss"])


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


def test_over_nfs_a_reply_may_get_lost(tmp_path, monkeypatch):
    """A repeated request finds its own link. A failure that is no rival is raised, and leaves nothing."""
    link = os.link

    def lost(source: Path, target: Path) -> None:
        if target.name == "linked":
            link(source, target)
            raise FileExistsError(errno.EEXIST, "exists")
        raise OSError(errno.EIO, "lost")

    monkeypatch.setattr(os, "link", lost)
    assert publish(tmp_path / "linked", {"mine": 1})
    with pytest.raises(ScalingError) as raised:
        publish(tmp_path / "file", {"mine": 1})
    assert raised.value.code == DISK
    assert [path.name for path in tmp_path.iterdir()] == ["linked"]


def test_a_torn_tail_or_a_flipped_bit_costs_its_line_alone(path):
    content, chance = written(path, ENTRIES).read_bytes(), random.Random(0)
    for length in range(len(content) + 1):
        path.write_bytes(content[:length])
        whole = content[: length + 1].count(b"\n")  # a line that lacks only its line end is whole
        assert list(entries(path)) == ENTRIES[:whole]
        log = Log(path)
        log.write({"kind": "after"})
        assert list(entries(path)) == [*ENTRIES[:whole], {"kind": "after"}]
    for _ in range(300):
        flipped = bytearray(content)
        flipped[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        path.write_bytes(flipped)
        found = list(entries(path))
        assert all(entry in ENTRIES for entry in found)
        assert len(found) >= 3, "a flipped line end costs the two lines that it parted"


# Changes of a file after which a command ends well, or names the file in one line.
CHANGES: dict[str, Any] = {
    "cut off": lambda content: content[: len(content) // 2],
    "edited by hand": lambda content: content.replace(b'"seed": ', b'"seed": 1').replace(b"2.1", b"1.9"),
    "no JSON": lambda content: b"[" * 100_000,
    "a pipe": None,
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("file", ["spec.json", "result.json", "plan.json", "log.jsonl"])
def test_a_file_that_was_changed_is_one_line_and_never_taken_for_a_whole_one(file, change, ledger, capsys):
    runs = [ledger.add({"model": {"kind": "Decoder"}, "data": {"kind": "Synthetic"}, "seed": seed}) for seed in (0, 1)]
    with claimed(ledger, runs[0]) as done, claimed(ledger, runs[1]) as failed:
        done.finish("finished", {"loss": 2.1, "step": 12, "circumstances": {"device": "cpu"}})
        failed.end("out_of_memory", "ValueError: broken", ValueError("broken"))
    assert ledger.attempts(runs[1])[0].failed
    study = {"name": "s", "question": "q", "base": "decoder", "set": {}, "grid": {"seed": [0, 1]}}
    entry = {"overrides": [], "held_out": False, "steps": 12, "flops": 1e6, "trunk": None, "point": {"N": 8, "D": 7}}
    ledger.save_plan("s", {"study": study, "runs": [{"run": run, "name": run, **entry} for run in runs]})
    before = {run: ledger.result(run) for run in runs}
    for path in [*ledger.root.rglob(file)]:
        content = path.read_bytes()
        path.unlink()
        os.mkfifo(path) if change == "a pipe" else path.write_bytes(CHANGES[change](content))
    printed = ""
    for command in ("runs", "runs s", f"show {runs[0]}", "gc", "runs --json"):
        code, error = main([*command.split(), f"runs={ledger.root}"]), capsys.readouterr().err
        assert "Traceback" not in error
        assert code == 0 or (code == 2 and error.splitlines()[-1].startswith("scaling: ")), error
        printed += error
    after = {run: Ledger.open(ledger.root).result(run) for run in runs}
    assert after == (dict.fromkeys(runs) if file == "result.json" else before)
    assert ("the plan is damaged" in printed) == (file == "plan.json")
    if file == "result.json" and change != "a pipe":  # a damaged result is written again
        with claimed(ledger, runs[0]) as again:
            assert again.finish("finished", {"loss": 2.0})["loss"] == ledger.result(runs[0])["loss"] == 2.0
