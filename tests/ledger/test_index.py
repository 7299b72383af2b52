"""The index is a cache: with it, without it and with a wrong one, the ledger tells the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scaling.ledger import Ledger, collect, index


@pytest.fixture
def finished(ledger: Ledger, runs: list[str]) -> list[str]:
    """The first two of three runs finished."""
    for number, run in enumerate(runs[:2]):
        attempt = ledger.claim(run)
        assert attempt is not None
        with attempt:
            attempt.log.write({"kind": "train", "step": 4, "steps": 4, "loss": 2.5})
            for step in (2, 4):
                with attempt.checkpoint(step) as folder:
                    (folder / "model").write_bytes(bytes(1000))
            attempt.finish("finished", {"loss": 2.0 + number, "step": 4, "circumstances": {"tokens_per_second": 10.0}})
    return runs[:2]


def _told(ledger: Ledger) -> tuple[object, object]:
    return index.rows(ledger), list(index.results(ledger))


def test_an_altered_number_in_it_changes_no_answer(ledger: Ledger, finished: list[str]) -> None:
    told, path = _told(ledger), ledger.root / index.NAME
    whole = path.read_text()
    path.write_text(whole.replace('"loss":2.0', '"loss":1.5'))
    assert path.read_text() != whole
    assert _told(ledger) == told
    assert sorted(path.read_text().splitlines()) == sorted(whole.splitlines())


def test_rows_and_results(ledger: Ledger, runs: list[str], finished: list[str]) -> None:
    rows = {row.run: row for row in index.rows(ledger)}
    assert [rows[run].state for run in runs] == ["finished", "finished", "waiting"]
    assert [rows[run].loss for run in runs] == [2.0, 3.0, None]
    assert rows[runs[0]].tokens_per_second == 10.0
    assert [row.run for row in index.rows(ledger, runs[::-1])] == runs[::-1]
    assert [(run, spec, result["loss"]) for run, spec, result in index.results(ledger, runs)] == [
        (finished[0], ledger.spec(finished[0]), 2.0),
        (finished[1], ledger.spec(finished[1]), 3.0),
    ]


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe", b"a\tb\tc\td\te\n" * 3, b"\0" * 100])
def test_it_tells_the_same_whatever_is_in_it(ledger: Ledger, finished: list[str], content: bytes | None) -> None:
    told = _told(ledger)
    path = ledger.root / index.NAME
    assert all(run in path.read_text() for run in finished)
    assert _told(ledger) == told
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    assert _told(ledger) == told


def test_a_run_made_anew_is_read_anew(ledger: Ledger, finished: list[str]) -> None:
    index.rows(ledger)
    spec = ledger.spec(finished[0])
    shutil.rmtree(ledger.folder(finished[0]))
    assert finished[0] not in {row.run for row in index.rows(ledger)}
    ledger.add(spec)
    assert next(row.state for row in index.rows(ledger) if row.run == finished[0]) == "waiting"
    attempt = ledger.claim(finished[0])
    assert attempt is not None
    with attempt:
        attempt.finish("finished", {"loss": 9.0})
    assert next(row.loss for row in index.rows(ledger) if row.run == finished[0]) == 9.0


def test_collecting_says_first_and_frees_then(ledger: Ledger, runs: list[str], finished: list[str]) -> None:
    ledger.save_plan("study", {"runs": [{"run": runs[2], "trunk": {"run": finished[0], "step": 2}}]})
    found = list(collect.waste(ledger))
    told = {(item.run, int(item.path.name)) for item in found}
    assert told == {(finished[1], 2)}
    assert all(item.path.exists() for item in found), "nothing was touched"
    assert collect.free(found) == sum(item.bytes for item in found) > 1000
    assert not any(item.path.exists() for item in found)
    assert ledger.checkpoint(finished[0], 2) is not None, "a branch still needs it"
    assert all(ledger.checkpoint(run, 4) is not None for run in finished), "the final weights"
    assert list(collect.waste(ledger)) == []
    named = list(collect.waste(ledger, weights=True))
    assert {(item.run, item.kind) for item in named} == {(run, "final weights") for run in finished}
    collect.free(named)
    assert ledger.checkpoint(finished[0], 2) is not None, "a branch still needs it"
    assert ledger.checkpoint(finished[0], 4) is None
    assert ledger.result(finished[0]) is not None


def test_where_the_last_checkpoint_is_damaged_the_one_before_is_the_final_one(
    ledger: Ledger, finished: list[str]
) -> None:
    (record,) = ledger.attempts(finished[0])
    (record.folder / "checkpoints" / "000000000004" / "model").write_bytes(b"flipped")
    collect.free(collect.waste(ledger))
    assert ledger.checkpoint(finished[0], 2) is not None


def test_nothing_of_an_attempt_that_trains_a_run_again_is_freed(ledger: Ledger, finished: list[str]) -> None:
    attempt = ledger.claim(finished[0], again=True)
    assert attempt is not None
    with attempt:
        with attempt.checkpoint(2) as folder:
            (folder / "model").write_bytes(b"again")
        collect.free(collect.waste(ledger))
        assert (attempt.folder / "checkpoints" / "000000000002").exists()
        assert ledger.checkpoint(finished[0], 4) is not None
        attempt.end("stopped", "enough")
    assert (finished[0], 2) in {(item.run, int(item.path.name)) for item in collect.waste(ledger)}


def test_another_result_of_training_again_is_listed_and_leaves_the_weights_that_stand(
    ledger: Ledger, finished: list[str]
) -> None:
    index.rows(ledger)
    attempt = ledger.claim(finished[0], again=True)
    assert attempt is not None
    with attempt:
        assert attempt.resume() is None, "it begins anew"
        attempt.log.write({"kind": "train", "step": 4, "steps": 4, "loss": 9.5})
        for step in (2, 3, 4):
            with attempt.checkpoint(step) as folder:
                (folder / "model").write_bytes(b"another")
        attempt.finish("finished", {"loss": 2.25, "step": 4})
    row = next(row for row in index.rows(ledger) if row.run == finished[0])
    assert (row.loss, row.reason) == (2.0, "attempt 2 found another result")
    assert [entry["loss"] for entry in ledger.history(finished[0]) if "loss" in entry] == [2.5]
    kept = ledger.checkpoint(finished[0], 4)
    assert kept is not None
    assert (kept.folder / "model").read_bytes() == bytes(1000)


def test_an_idle_trunk_is_spent_when_its_branches_are_done(ledger: Ledger, runs: list[str]) -> None:
    trunk, branch, _ = runs
    ledger.save_plan("study", {"runs": [{"run": branch, "trunk": {"run": trunk, "step": 1}}]})
    for run in (trunk, branch):
        attempt = ledger.claim(run)
        assert attempt is not None
        with attempt:
            if run == branch:
                attempt.finish("finished", {"loss": 1.0})
                break
            with attempt.checkpoint(1) as folder:
                (folder / "model").write_bytes(b"m")
            attempt.end("stopped", "enough")
            assert list(collect.waste(ledger)) == []
    assert [item.run for item in collect.waste(ledger)] == [trunk]


def test_what_a_dead_writer_left_is_found(ledger: Ledger, runs: list[str]) -> None:
    attempt = ledger.claim(runs[0])
    assert attempt is not None
    left = attempt.folder / "checkpoints" / ".writing-000000000004-00"
    left.mkdir(parents=True)
    (left / "model").write_bytes(bytes(10))
    with attempt:
        assert list(collect.waste(ledger)) == [], "it may be writing still"
        attempt.end("stopped", "enough")
    assert [(item.kind, item.bytes) for item in collect.waste(ledger)] == [("half-written", 10)]
    collect.free(collect.waste(ledger))
    assert not left.exists()


@pytest.mark.parametrize(
    "place",
    [
        "",
        "store/RUN",
        "store/RUN/attempts",
        "store/RUN/attempts/001",
        "studies/one",
        "studies/one/report",
        "calibration",
    ],
)
@pytest.mark.parametrize("killed", [True, False], ids=["killed", "running"])
def test_what_a_killed_process_was_writing_is_found_anywhere(
    ledger: Ledger, finished: list[str], place: str, killed: bool, tmp_path: Path
) -> None:
    folder = ledger.root / place.replace("RUN", finished[0])
    folder.mkdir(parents=True, exist_ok=True)
    code = (
        "import os, sys, pathlib; from scaling import atomic; "
        "atomic.os.replace = lambda *_: (print('writing', flush=True), sys.stdin.read()); "
        "atomic.write(pathlib.Path(sys.argv[1]), 'half')"
    )
    words = [sys.executable, "-c", code, str(folder / "points.csv")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"writing\n"
        if killed:
            writer.kill()
            writer.wait()
        found = [item for item in collect.waste(ledger) if item.kind == "half-written"]
        writer.kill()
    assert [item.path.parent for item in found] == ([folder] if killed else [])
    collect.free(found)
    assert list(folder.glob(".*points.csv*")) == ([] if killed else list(folder.glob(".writing-*")))


@pytest.mark.parametrize("name", [".writing-result.json-0123456789abcdef", ".points.csv.0123456789abcdef"])
@pytest.mark.parametrize("place", ["", "store/RUN", "studies/one/report"])
def test_what_an_earlier_version_left_is_found_where_nobody_works(
    ledger: Ledger, runs: list[str], name: str, place: str
) -> None:
    folder = ledger.root / place.replace("RUN", runs[0])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(bytes(7))
    attempt = ledger.claim(runs[0])
    assert attempt is not None
    with attempt:
        assert list(collect.waste(ledger)) == [], "it may be writing still"
        attempt.end("stopped", "enough")
    (item,) = collect.waste(ledger)
    assert (item.path, item.kind, item.bytes) == (folder / name, "half-written", 7)
    collect.free([item])
    assert not (folder / name).exists()


def test_another_machine_is_given_a_day(ledger: Ledger) -> None:
    left = ledger.root / ".writing-index.tsv-00000000-1-0123456789abcdef"
    left.write_text("half")
    assert list(collect.waste(ledger)) == []
    os.utime(left, (0, time.time() - 2 * 86400))
    assert [item.path for item in collect.waste(ledger)] == [left]


def test_a_link_that_leads_out_is_not_followed(ledger: Ledger, finished: list[str], tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "manifest.json").write_text("{}")
    attempt = ledger.attempts(finished[0])[0].folder
    (attempt / "checkpoints" / "000000000009").symlink_to(outside)
    (attempt / "checkpoints" / ".writing-x").symlink_to(outside)
    collect.free(collect.waste(ledger))
    assert (outside / "manifest.json").exists()
