"""The index is a cache: with it, without it and with a wrong one, the ledger tells the same."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from scaling.ledger import Ledger, listing
from tests.ledger.worker import claimed


@pytest.fixture
def finished(ledger: Ledger, runs: list[str]) -> list[str]:
    """The first two of three runs finished."""
    for number, run in enumerate(runs[:2]):
        with claimed(ledger, run) as attempt:
            attempt.log.write({"kind": "train", "step": 4, "steps": 4, "loss": 2.5})
            for step in (2, 4):
                with attempt.checkpoint(step) as folder:
                    (folder / "model").write_bytes(bytes(1000))
            attempt.finish("finished", {"loss": 2.0 + number, "step": 4, "circumstances": {"tokens_per_second": 10.0}})
    return runs[:2]


def _told(ledger: Ledger) -> tuple[object, object]:
    return listing.rows(ledger), list(listing.results(ledger))


def test_rows_and_results(ledger: Ledger, runs: list[str], finished: list[str]) -> None:
    rows = {row.run: row for row in listing.rows(ledger)}
    assert [rows[run].state for run in runs] == ["finished", "finished", "waiting"]
    assert [rows[run].loss for run in runs] == [2.0, 3.0, None]
    assert rows[runs[0]].tokens_per_second == 10.0
    assert [row.run for row in listing.rows(ledger, runs[::-1])] == runs[::-1]
    assert [(run, spec, result["loss"]) for run, spec, result in listing.results(ledger, runs)] == [
        (finished[0], ledger.spec(finished[0]), 2.0),
        (finished[1], ledger.spec(finished[1]), 3.0),
    ]


CHANGES = {
    "gone": None,
    "empty": lambda text: b"",
    "another's": lambda text: b"\xff\xfe" + b"a\tb\tc\td\te\n" * 3,
    "altered": lambda text: text.replace('"loss":2.0', '"loss":1.5').encode(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_it_tells_the_same_whatever_is_in_it(ledger: Ledger, finished: list[str], change: str) -> None:
    told, path = _told(ledger), ledger.root / listing.INDEX
    whole = path.read_text()
    assert all(run in whole for run in finished)
    assert _told(ledger) == told
    path.unlink() if CHANGES[change] is None else path.write_bytes(CHANGES[change](whole))
    assert _told(ledger) == told
    assert sorted(path.read_text().splitlines()) == sorted(whole.splitlines())


def test_a_run_made_anew_is_read_anew(ledger: Ledger, finished: list[str]) -> None:
    listing.rows(ledger)
    spec = ledger.spec(finished[0])
    shutil.rmtree(ledger.folder(finished[0]))
    assert finished[0] not in {row.run for row in listing.rows(ledger)}
    ledger.add(spec)
    assert next(row.state for row in listing.rows(ledger) if row.run == finished[0]) == "waiting"
    with claimed(ledger, finished[0]) as attempt:
        attempt.finish("finished", {"loss": 9.0})
    assert next(row.loss for row in listing.rows(ledger) if row.run == finished[0]) == 9.0


def test_collecting_says_first_and_frees_then(ledger: Ledger, runs: list[str], finished: list[str]) -> None:
    ledger.save_plan("study", {"runs": [{"run": runs[2], "trunk": {"run": finished[0], "step": 2}}]})
    found = listing.waste(ledger)[0]
    told = {(item.run, int(item.path.name)) for item in found}
    assert told == {(finished[1], 2)}
    assert all(item.path.exists() for item in found), "nothing was touched"
    assert listing.free(found) == sum(item.bytes for item in found) > 1000
    assert not any(item.path.exists() for item in found)
    assert ledger.checkpoint(finished[0], 2) is not None, "a branch still needs it"
    assert all(ledger.checkpoint(run, 4) is not None for run in finished), "the final weights"
    assert listing.waste(ledger)[0] == []
    named = listing.waste(ledger, weights=True)[0]
    assert {(item.run, item.kind) for item in named} == {(run, "final weights") for run in finished}
    listing.free(named)
    assert ledger.checkpoint(finished[0], 2) is not None, "a branch still needs it"
    assert ledger.checkpoint(finished[0], 4) is None
    assert ledger.result(finished[0]) is not None


def test_where_the_last_checkpoint_is_damaged_the_one_before_is_the_final_one(
    ledger: Ledger, finished: list[str]
) -> None:
    (ledger.folder(finished[0]) / "checkpoints" / "000000000004" / "model").write_bytes(b"flipped")
    listing.free(listing.waste(ledger)[0])
    assert ledger.checkpoint(finished[0], 2) is not None


def test_nothing_of_a_run_that_is_trained_again_is_freed_and_what_a_killed_one_left_is(
    ledger: Ledger, runs: list[str], finished: list[str]
) -> None:
    with claimed(ledger, finished[0], again=True) as attempt, attempt.checkpoint(2) as folder:
        (folder / "model").write_bytes(b"again")
        assert {item.run for item in listing.waste(ledger)[0]} == {finished[1]}
    left = ledger.folder(finished[0]) / "again"
    left.mkdir()
    (left / "log.jsonl").write_text("{}")
    assert (left, "half-written", 2) in {(item.path, item.kind, item.bytes) for item in listing.waste(ledger)[0]}
    listing.free(listing.waste(ledger)[0])
    assert not left.exists()


def test_another_result_of_a_run_that_was_listed_is_listed(ledger: Ledger, finished: list[str]) -> None:
    listing.rows(ledger)
    with claimed(ledger, finished[0], again=True) as attempt:
        attempt.finish("finished", {"loss": 2.25, "step": 4})
    row = next(row for row in listing.rows(ledger) if row.run == finished[0])
    assert (row.loss, row.reason) == (2.0, "attempt 2 found another result")


def test_an_idle_trunk_is_spent_when_its_branches_are_done(ledger: Ledger, runs: list[str]) -> None:
    trunk, branch, _ = runs
    ledger.save_plan("study", {"runs": [{"run": branch, "trunk": {"run": trunk, "step": 1}}]})
    for run in (trunk, branch):
        with claimed(ledger, run) as attempt:
            if run == branch:
                attempt.finish("finished", {"loss": 1.0})
                break
            with attempt.checkpoint(1) as folder:
                (folder / "model").write_bytes(b"m")
            attempt.end("stopped", "enough")
            assert listing.waste(ledger)[0] == []
    assert [item.run for item in listing.waste(ledger)[0]] == [trunk]


@pytest.mark.parametrize(
    "place", ["", "store/RUN", "store/RUN/checkpoints", "studies/one", "studies/one/report", "calibration"]
)
def test_what_a_killed_process_was_writing_is_found_anywhere(ledger: Ledger, runs: list[str], place: str) -> None:
    left = ledger.root / place.replace("RUN", runs[0]) / ".writing-points.csv-00"
    left.mkdir(parents=True)
    (left / "half").write_bytes(bytes(10))
    assert listing.waste(ledger)[0] == [], "it may be writing still"
    os.utime(left, (0, time.time() - 2 * listing.HOUR))
    with claimed(ledger, runs[0]) as attempt:
        assert listing.waste(ledger)[0] == [], "someone works there"
        attempt.end("stopped", "enough")
    assert [(item.kind, item.bytes, item.path) for item in listing.waste(ledger)[0]] == [("half-written", 10, left)]
    listing.free(listing.waste(ledger)[0])
    assert not left.exists()


def test_a_link_that_leads_out_is_not_followed(ledger: Ledger, finished: list[str], tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "manifest.json").write_text("{}")
    checkpoints = ledger.folder(finished[0]) / "checkpoints"
    (checkpoints / "000000000009").symlink_to(outside)
    (checkpoints / ".writing-x").symlink_to(outside)
    os.utime(checkpoints / ".writing-x", (0, 0), follow_symlinks=False)
    listing.free(listing.waste(ledger)[0])
    assert (outside / "manifest.json").exists()
