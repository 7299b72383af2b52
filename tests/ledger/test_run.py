"""An attempt from its start to its end: what others see of it, and that the first valid result stands."""

from __future__ import annotations

import json
import logging
import math
import shutil
from pathlib import Path

import pytest

from scaling.ledger import RESULTS, Attempt, Ledger
from scaling.ledger.document import entries, seal
from tests.ledger.worker import claimed


def save(attempt: Attempt, step: int, content: bytes = b"m") -> None:
    with attempt.checkpoint(step) as folder:
        (folder / "model").write_bytes(content)


def taken_over(ledger: Ledger, run: str) -> Attempt:
    """A second attempt, as if the lock of the first had been judged abandoned."""
    (ledger.folder(run) / "lock").unlink()
    return claimed(ledger, run)


def test_one_attempt_at_a_time(ledger: Ledger, runs: list[str]) -> None:
    first = claimed(ledger, runs[0])
    with first:
        assert ledger.claim(runs[0]) is None
        assert ledger.status(runs[0]).state == "running"
        assert not first.superseded
    assert sorted(path.name for path in first.run.iterdir()) == ["log.jsonl", "spec.json"], "the lock is gone"
    with claimed(ledger, runs[0]) as second:
        assert second.number == 2
        second.finish("finished", {"loss": 1.0})
    assert ledger.claim(runs[0]) is None


def test_a_result_stands_and_a_later_one_is_compared(ledger, runs, caplog) -> None:
    first = claimed(ledger, runs[0])
    late = taken_over(ledger, runs[0])
    with first, late:
        assert first.finish("finished", {"loss": 2.5, "circumstances": {"host": "a"}}).first
        with caplog.at_level(logging.WARNING):
            verdict = late.finish("finished", {"loss": 2.75, "circumstances": {"host": "b"}})
    assert (verdict.first, verdict.stands["loss"]) == (False, 2.5)
    assert verdict.differences == {"loss": (2.5, 2.75)}
    assert "attempt 2 found another result than attempt 1" in caplog.text
    assert ledger.result(runs[0])["loss"] == 2.5
    assert ledger.attempts(runs[0])[1].end["differences"] == {"loss": [2.5, 2.75]}
    assert ledger.status(runs[0]).reason == "attempt 2 found another result"


@pytest.mark.parametrize("change", [{}, {"circumstances": {"host": "b"}}])
def test_a_later_result_that_is_the_same_is_no_difference(ledger, runs, change) -> None:
    first = claimed(ledger, runs[0])
    late = taken_over(ledger, runs[0])
    with first, late:
        first.finish("diverged", {"loss": math.nan, "circumstances": {"host": "a"}})
        verdict = late.finish("diverged", {"loss": math.nan, "circumstances": {"host": "a"}, **change})
    assert (verdict.first, verdict.differences) == (False, {})


def test_a_damaged_result_is_none_and_is_written_again(ledger, runs) -> None:
    for content in (b"", b'{"loss": 1}', seal({"run": runs[1], "attempt": 1, "outcome": "finished"})):
        (ledger.folder(runs[0]) / "result.json").write_bytes(content)
        assert ledger.result(runs[0]) is None
        assert ledger.status(runs[0]).state == "waiting"
    with claimed(ledger, runs[0]) as attempt:
        assert attempt.finish("finished", {"loss": 2.0}).first
    result = ledger.result(runs[0])
    assert result is not None
    assert result["loss"] == 2.0


@pytest.mark.parametrize("outcome", ["finished", "diverged", "pruned", "out_of_memory", "failed", "stopped"])
def test_a_result_ends_a_run_and_an_interruption_leaves_it_open(ledger, runs, outcome) -> None:
    with claimed(ledger, runs[0]) as attempt:
        if outcome in RESULTS:
            attempt.finish(outcome, {"loss": math.nan})
        else:
            attempt.end(outcome, "for a reason")
    row = ledger.status(runs[0])
    assert (row.state, row.reason) == (outcome, None if outcome in RESULTS else "for a reason")
    again = ledger.claim(runs[0])
    assert (again is None) == (outcome in RESULTS)
    if again is not None:
        again.close()


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(RuntimeError("two\nlines"), "failed"), (KeyboardInterrupt(), "stopped"), (SystemExit(143), "stopped")],
)
def test_leaving_by_an_exception_is_logged(ledger, runs, error, outcome) -> None:
    with pytest.raises(type(error)), claimed(ledger, runs[0]):
        raise error
    row, (record,) = ledger.status(runs[0]), ledger.attempts(runs[0])
    assert row.state == outcome
    assert "\n" not in str(row.reason)
    assert ("RuntimeError" in record.end.get("traceback", "")) == (outcome == "failed")


def test_failures_count_until_someone_asks_to_try_again(ledger, runs) -> None:
    for outcome in ("failed", "stopped", "out_of_memory"):
        with claimed(ledger, runs[0]) as attempt:
            attempt.end(outcome, "")
    assert [record.failed for record in ledger.attempts(runs[0])] == [True, False, True]
    ledger.retry(runs[0])
    assert not any(record.failed for record in ledger.attempts(runs[0]))
    with claimed(ledger, runs[0]) as attempt:
        attempt.end("failed", "")
    assert [record.failed for record in ledger.attempts(runs[0])] == [False, False, False, True]


def test_the_history_has_each_step_once_from_its_last_attempt(ledger, runs) -> None:
    for lines in ([(1, 1.0), (2, 2.0), (3, 3.0)], [(3, 3.5), (4, 4.0)]):
        with claimed(ledger, runs[0]) as attempt:
            attempt.resume()
            for step, loss in lines:
                attempt.log.write({"kind": "train", "step": step, "loss": loss})
            attempt.log.write({"kind": "evaluate", "step": lines[0][0], "loss": 9.0})
    history = ledger.history(runs[0])
    assert [entry["kind"] for entry in history[:2]] == ["resume", "resume"]
    assert [(entry["step"], entry["loss"]) for entry in history[2:] if entry["kind"] == "train"] == [
        *((1, 1.0), (2, 2.0), (3, 3.5), (4, 4.0))
    ]
    assert [entry["step"] for entry in history[2:] if entry["kind"] == "evaluate"] == [1, 3]


# Training a run that is done again


@pytest.fixture
def done(ledger: Ledger, runs: list[str]) -> str:
    with claimed(ledger, runs[0]) as attempt:
        attempt.log.write({"kind": "train", "step": 4, "loss": 2.5})
        save(attempt, 4, b"first")
        attempt.finish("finished", {"loss": 2.0, "step": 4})
    return runs[0]


@pytest.mark.parametrize("freed", [False, True])
@pytest.mark.parametrize("loss", [2.0, 2.25])
def test_a_run_that_is_trained_again(ledger, done, freed, loss) -> None:
    """Its own checkpoints take the place of freed weights where the result is the same, and nothing else changes."""
    folder = ledger.folder(done)
    before = sorted(path.name for path in folder.iterdir())
    if freed:
        shutil.rmtree(folder / "checkpoints" / "000000000004")
    with claimed(ledger, done, again=True) as attempt:
        assert attempt.resume() is None, "it begins with the first step"
        attempt.log.write({"kind": "train", "step": 4, "loss": 9.5})
        save(attempt, 4, b"again")
        assert attempt.saved(4) is not None
        attempt.finish("finished", {"loss": loss, "step": 4})
    assert sorted(path.name for path in folder.iterdir()) == before
    kept = ledger.checkpoint(done, 4)
    content = None if kept is None else (kept.folder / "model").read_bytes()
    assert content == (b"first" if not freed else b"again" if loss == 2.0 else None)
    assert ledger.result(done)["loss"] == 2.0
    assert ledger.result(done)["attempt"] == 1
    assert [entry["loss"] for entry in ledger.history(done) if "loss" in entry] == [2.5]
    assert ledger.attempts(done)[1].end.get("differences", {}) == ({} if loss == 2.0 else {"loss": [2.0, 2.25]})


def test_what_a_killed_one_left_is_no_start(ledger, done) -> None:
    left = ledger.folder(done) / "again" / "checkpoints" / "000000000002"
    left.mkdir(parents=True)
    with claimed(ledger, done, again=True) as attempt:
        assert not left.exists()
        attempt.end("stopped", "enough")
    assert not left.parents[1].exists()
    assert ledger.claim(done) is None


def test_what_docs_say_of_a_log(ledger, runs) -> None:
    """`start` and `end` of an attempt, each a line of JSON that names it; a killed one has no `end`."""
    with claimed(ledger, runs[0]) as attempt:
        attempt.finish("finished", {"loss": 1.0})
    log: Path = ledger.folder(runs[0]) / "log.jsonl"
    start, end = (json.loads(line) for line in log.read_text().splitlines())
    assert {"kind", "attempt", "time", "host", "pid"} < start.keys()
    assert (end["kind"], end["attempt"], end["outcome"], end["first"]) == ("end", 1, "finished", True)
    log.write_bytes(log.read_bytes().splitlines(keepends=True)[0])
    assert [record.end for record in ledger.attempts(runs[0])] == [None]
    assert [entry["kind"] for entry in entries(log)] == ["start"]
