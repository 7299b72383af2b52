"""Predictions on record: refused once the run has begun, scored when it has ended."""

import shutil

import pytest

from scaling.base.errors import ScalingError
from scaling.ledger import Ledger
from scaling.ledger.document import entries, read, seal, stamp
from scaling.studies.predictions import calibration, register, registered

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


def test_a_prediction_is_scored_when_its_run_has_ended_and_refused_once_it_has_begun(ledger, runs):
    for run in runs:
        assert register(ledger, run, DOCUMENT)[1]
        assert not register(ledger, run, DOCUMENT)[1]  # the same prediction made twice is one
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
    with pytest.raises(ScalingError, match="is done, so its loss is known"):
        register(ledger, runs[0], {**DOCUMENT, "predicted": 2.55})
    begun = ledger.add({"model": {"kind": "Chain"}, "seed": 9})
    with ledger.claim(begun) as attempt:
        with pytest.raises(ScalingError, match="has begun"):
            register(ledger, begun, DOCUMENT)
        attempt.end("stopped", "enough")
    assert len(registered(ledger)) == 3


def test_a_prediction_that_was_rewritten_under_its_name_is_altered_and_counts_as_none(ledger, runs):
    path, _ = register(ledger, runs[0], DOCUMENT)
    kept, _ = register(ledger, runs[1], DOCUMENT)
    path.write_bytes(seal({**(read(path) or {}), "predicted": 2.55}))
    shutil.copy(kept, other := kept.with_name(f"{runs[2]}-{kept.name.partition('-')[2]}"))  # of another run
    with pytest.raises(ScalingError, match="is altered; delete the file and predict again"):
        register(ledger, runs[0], {**DOCUMENT})
    finish(ledger, runs[0], 2.55)
    standings = {f"{entry['prediction']}.json": entry["standing"] for entry in registered(ledger)}
    assert standings == {path.name: "altered", kept.name: "waiting", other.name: "altered"}
    record = calibration(registered(ledger))
    assert (record["predictions"], record["scored"], record["altered"]) == (1, 0, [path.name, other.name])
    # One that was added by hand later counts as late.
    finish(ledger, runs[1], 2.5)
    log = ledger.folder(runs[1]) / "log.jsonl"
    log.write_bytes(b"".join(stamp({**entry, "time": "2001-01-01T00:00:00+00:00"}) for entry in entries(log)))
    assert {entry["standing"] for entry in registered(Ledger.open(ledger.root))} == {"altered", "late"}
