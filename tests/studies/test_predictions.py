"""Predictions on record: whole or absent, refused once the run has begun, scored when it has ended."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from scaling.base.errors import ScalingError
from scaling.ledger import Ledger
from scaling.ledger.document import entries, read, seal, stamp
from scaling.studies.predictions import FOLDER, calibration, register, registered

INTERVAL = {"estimate": 2.5, "low": 2.4, "high": 2.6, "level": 0.95, "method": "profile"}
DOCUMENT = {
    "law": "chinchilla",
    "formula": "L = E",
    "estimates": {"E": 2.0},
    "row": {"N": 1e6, "D": 1e7},
    "predicted": 2.5,
    "level": 0.95,
    "interval_mean": INTERVAL,
    "interval_run": INTERVAL,
    "points": {"source": "points.csv", "fitted": 9, "sha256": "0" * 64},
    "version": "1",
}


@pytest.fixture
def ledger(tmp_path):
    return Ledger.create(tmp_path / "runs")


@pytest.fixture
def runs(ledger):
    return [ledger.add({"model": {"kind": "Chain"}, "seed": number}) for number in range(3)]


def finish(ledger, run, loss, outcome="finished"):
    with ledger.claim(run) as attempt:
        attempt.finish(outcome, {"loss": loss, "step": 1, "tokens": 8, "circumstances": {}})


def test_a_prediction_is_scored_when_its_run_has_ended(ledger, runs):
    for run in runs:
        assert register(ledger, run, DOCUMENT)[1]
    assert [entry["standing"] for entry in registered(ledger)] == ["waiting"] * 3
    finish(ledger, runs[0], 2.55)
    finish(ledger, runs[1], 2.8)
    finish(ledger, runs[2], None, "diverged")
    by_run = {entry["run"]: entry for entry in registered(ledger)}
    assert [by_run[run]["standing"] for run in runs] == ["scored", "scored", "no loss"]
    assert [by_run[run]["covered"] for run in runs] == [True, False, None]
    assert by_run[runs[1]]["relative_error"] == pytest.approx(2.5 / 2.8 - 1)
    record = calibration(registered(ledger))
    assert record["levels"] == [{"level": 0.95, "scored": 2, "inside": 1, "covered": 0.5}]
    assert record["mean_absolute_relative_error"] == pytest.approx(((1 - 2.5 / 2.55) + (1 - 2.5 / 2.8)) / 2)


def test_a_prediction_about_a_run_that_is_done_or_has_begun_is_refused(ledger, runs):
    finish(ledger, runs[0], 2.5)
    with pytest.raises(ScalingError, match="is done, so its loss is known"):
        register(ledger, runs[0], DOCUMENT)
    with ledger.claim(runs[1]) as attempt:
        with pytest.raises(ScalingError, match="has begun"):
            register(ledger, runs[1], DOCUMENT)
        attempt.end("stopped", "enough")
    assert registered(ledger) == []


def test_a_prediction_that_was_added_by_hand_later_counts_as_late(ledger, runs):
    path, _ = register(ledger, runs[0], DOCUMENT)
    finish(ledger, runs[0], 2.5)
    log = ledger.folder(runs[0]) / "log.jsonl"
    log.write_bytes(b"".join(stamp({**entry, "time": "2001-01-01T00:00:00+00:00"}) for entry in entries(log)))
    assert [entry["standing"] for entry in registered(Ledger.open(ledger.root))] == ["late"]
    assert path.exists()


def test_a_prediction_that_was_rewritten_under_its_name_is_altered_and_counts_as_none(ledger, runs):
    path, _ = register(ledger, runs[0], DOCUMENT)
    kept, _ = register(ledger, runs[1], DOCUMENT)
    path.write_bytes(seal({**(read(path) or {}), "predicted": 2.55}))
    shutil.copy(kept, other := kept.with_name(f"{runs[2]}-{kept.name.partition('-')[2]}"))  # of another run
    with pytest.raises(ScalingError, match="is altered; delete the file and predict again"):
        register(ledger, runs[0], {**DOCUMENT})
    finish(ledger, runs[0], 2.55)
    assert {f"{entry['prediction']}.json": entry["standing"] for entry in registered(ledger)} == {
        path.name: "altered",
        kept.name: "waiting",
        other.name: "altered",
    }
    record = calibration(registered(ledger))
    assert (record["predictions"], record["scored"], record["altered"]) == (1, 0, [path.name, other.name])


def test_a_killed_writer_leaves_whole_predictions_or_none(ledger, runs):
    code = f"""
import itertools
from scaling.ledger import Ledger
from scaling.studies.predictions import register
ledger = Ledger.open({str(ledger.root)!r})
for number in itertools.count():
    register(ledger, {runs[0]!r}, {DOCUMENT!r} | {{"predicted": 2.0 + number / 1e6}})
"""
    process = subprocess.Popen([sys.executable, "-c", code])
    folder = ledger.root / FOLDER
    try:
        end = time.monotonic() + 30
        while time.monotonic() < end and len(list(folder.glob("*.json"))) < 20:
            time.sleep(0.01)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    entries = registered(ledger)
    assert len(entries) >= 20
    assert {entry["standing"] for entry in entries} == {"waiting"}
