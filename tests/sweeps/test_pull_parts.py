"""The parts of pull that ask nobody: spelling, completeness, attempts of one run, files of the client."""

from __future__ import annotations

import math
import struct
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from scaling.errors import ScalingError
from scaling.ledger.document import flat
from scaling.sweeps.pull.history_check import merged, missing, short
from scaling.sweeps.pull.offline import BLOCK, HEAD, records
from scaling.sweeps.pull.reconcile import reconciled
from scaling.sweeps.pull.wandb_run import STEP, WandbRun, cell, entries, nested, result, spec

POINT = {"N": 1000, "D": 2000, "C": 1.2e7, "N_total": 1500, "C_definition": "as they run", "C_6N": 1.2e7, "S": 20}
KEY = some.text("abcdef_", min_size=1, max_size=4)
TREE = some.dictionaries(
    KEY, some.recursive(some.integers(), lambda inner: some.dictionaries(KEY, inner, min_size=1), max_leaves=6)
)


def shown(path: str = "me/proj/one", outcome: str | None = "finished", **changes: Any) -> WandbRun:
    summary = {"outcome": outcome, "loss": 2.5, "step": 20, "evaluate/loss": 2.5, "tokens": 2000}
    about = {
        "path": path,
        "name": path,
        "state": "finished" if outcome else "crashed",
        "created": "2026-01-01",
        "config": {"run": "a" * 16, "attempt": 1, "point": POINT},
        "summary": summary if outcome else {},
    }
    return WandbRun(**{**about, **changes})


@given(TREE)
def test_dotted_keys_open_and_close(tree):
    assert nested(flat(tree)) == tree


def test_a_section_that_is_whole_is_not_changed_by_what_a_sweep_asked_for():
    config = {"trainer.devices": 2, "trainer": {"max_steps": 9}, "size.width": 8, "seed": 1}
    assert nested(config) == {"trainer": {"max_steps": 9}, "size": {"width": 8}, "seed": 1}


def test_the_spec_is_the_config_without_what_stands_beside_it():
    one = shown(config={"run": "a" * 16, "point": POINT, "row": "GeLU", "seed.x": 1, "seed": {"x": 1}, "_wandb": {}})
    assert spec(one) == {"seed": {"x": 1}}


def test_what_a_sweep_drew_is_found_dotted_or_nested():
    one = shown(config={"optimizer.lr": 0.1, "optimizer": {"lr": 0.1, "beta": 0.9}, "row": "GeLU"})
    assert cell(one, ["optimizer.beta", "optimizer.lr", "row", "gone"]) == {
        "optimizer.beta": 0.9,
        "optimizer.lr": 0.1,
        "row": "GeLU",
    }


def test_rows_become_the_entries_of_a_log():
    history = {
        0: {"_step": 0, STEP: 1, "tokens": 64.0, "train/loss": 3.5, "train/mfu": "NaN", "flops": 1.0},
        1: {"_step": 1, STEP: 1, "tokens": 64.0, "evaluate/loss": 3.25},
    }
    one, two = entries(history)
    assert math.isnan(one.pop("mfu"))
    assert one == {"kind": "train", "step": 1, "tokens": 64, "loss": 3.5}
    assert two == {"kind": "evaluate", "step": 1, "tokens": 64, "loss": 3.25}


def test_a_result_holds_what_the_ledger_wants():
    found = result(shown())
    assert (found["loss"], found["step"], found["tokens"]) == (2.5, 20, 2000)
    assert found["N"] == {"non_embedding": 1000, "total": 1500}
    assert found["C"] == {"exact": 1.2e7, "6N": 1.2e7}
    assert found["circumstances"] == {"wandb": "me/proj/one"}


def whole(rows: int) -> dict[int, dict[str, Any]]:
    return {at: {"_step": at, "train/loss": 1.0 / (at + 1)} for at in range(rows)}


def test_a_whole_history_lacks_nothing():
    one = shown(lines=20, counts={"_step": 20, "train/loss": 20}, last=19)
    assert missing(whole(20), one) == []


@pytest.mark.parametrize(
    ("history", "told"),
    [
        ({}, ["0 of 20 rows", "its rows end at None, and W&B's at 19", "train/loss has 0 of 20 values"]),
        (whole(19), ["19 of 20 rows", "its rows end at 18, and W&B's at 19", "train/loss has 19 of 20 values"]),
        ({at: row for at, row in whole(20).items() if at != 7}, ["19 of 20 rows", "train/loss has 19 of 20 values"]),
        ({**whole(20), 3: {"_step": 3}}, ["train/loss has 19 of 20 values"]),
    ],
)
def test_what_a_history_lacks_is_said(history, told):
    assert missing(history, shown(lines=20, counts={"train/loss": 20}, last=19)) == told


def test_a_key_that_fell_short_is_filled_in_by_its_own_rows():
    one = shown(counts={"train/loss": 3, "evaluate/loss": 1})
    history = merged({}, [{"_step": 0, "train/loss": 1.0}, {"_step": 2, "evaluate/loss": 2.0}])
    assert short(history, one) == {"train/loss": (1, 3)}
    merged(history, [{"_step": step, "train/loss": 1.0} for step in range(3)])
    assert short(history, one) == {}
    assert history[2] == {"_step": 2, "evaluate/loss": 2.0, "train/loss": 1.0}


def test_the_attempt_that_finished_stands():
    killed = shown("me/proj/x", None, created="2026-01-01")
    done = shown("me/proj/b", created="2026-01-02")
    (found,) = reconciled([done, killed])
    assert [one.path for one in found.attempts] == ["me/proj/x", "me/proj/b"]
    assert found.stands is done
    assert not found.differing


def test_the_first_result_stands_and_another_one_is_told():
    first = shown("me/proj/z", created="2026-01-01")
    rival = shown("me/proj/a", created="2026-01-02", summary={**first.summary, "loss": 2.75})
    (found,) = reconciled([rival, first])
    assert found.stands is first
    assert found.differing == ("loss is 2.5 in me/proj/z and 2.75 in me/proj/a",)


def test_runs_of_others_are_none_of_ours():
    assert reconciled([shown(config={"run": "a" * 16}), shown(config={"run": "../x", "point": POINT})]) == []


@pytest.mark.parametrize(
    ("state", "outcome", "ends"),
    [
        ("finished", "finished", "finished"),
        ("finished", "diverged", "diverged"),
        ("finished", "pruned", "pruned"),
        ("finished", "stopped", "stopped"),
        ("failed", None, "failed"),
        ("crashed", None, "stopped"),
        ("killed", None, "stopped"),
        ("finished", None, "stopped"),
        ("running", None, None),
        ("pending", None, None),
    ],
)
def test_every_end_has_a_name(state, outcome, ends):
    assert shown(outcome=outcome, state=state).outcome == ends


def log(*payloads: bytes) -> bytes:
    """A file as the client writes it, written down from the format's description."""
    content = b":W&B\xe1\xbe\x00"
    for payload in payloads:
        first = True
        while first or payload:
            room = BLOCK - len(content) % BLOCK
            if room < HEAD:
                content += bytes(room)
                continue
            part, payload = payload[: room - HEAD], payload[room - HEAD :]
            kind = (1 if first else 4) if not payload else (2 if first else 3)
            content += struct.pack("<IHB", zlib.crc32(bytes([kind]) + part), len(part), kind) + part
            first = False
    return content


@given(some.lists(some.integers(1, 70_000), max_size=4))
def test_records_of_any_length_come_back(tmp_path_factory, lengths):
    payloads = [bytes([65 + number]) * length for number, length in enumerate(lengths)]
    path = tmp_path_factory.mktemp("log") / "run-x.wandb"
    path.write_bytes(log(*payloads))
    assert list(records(path)) == payloads


def test_a_torn_or_flipped_file_ends_at_its_last_whole_record(tmp_path):
    path, content = tmp_path / "run-x.wandb", log(b"one", b"two")
    path.write_bytes(content[:-1])
    assert list(records(path)) == [b"one"]
    path.write_bytes(content[:-1] + b"!")
    assert list(records(path)) == [b"one"]
    path.write_bytes(b"something else")
    with pytest.raises(ScalingError, match="no file of W&B's client"):
        list(records(path))
