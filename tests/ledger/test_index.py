"""The index is a cache: with it, without it and with a wrong one, the ledger tells the same."""

from __future__ import annotations

import shutil
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
    assert told == {(finished[0], 4), (finished[1], 2), (finished[1], 4)}
    assert all(item.path.exists() for item in found), "nothing was touched"
    assert collect.free(found) == sum(item.bytes for item in found) > 3000
    assert not any(item.path.exists() for item in found)
    assert ledger.checkpoint(finished[0], 2) is not None, "a branch still needs it"
    assert ledger.result(finished[0]) is not None
    assert list(collect.waste(ledger)) == []


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


def test_a_link_that_leads_out_is_not_followed(ledger: Ledger, finished: list[str], tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "manifest.json").write_text("{}")
    attempt = ledger.attempts(finished[0])[0].folder
    (attempt / "checkpoints" / "000000000009").symlink_to(outside)
    (attempt / "checkpoints" / ".writing-x").symlink_to(outside)
    collect.free(collect.waste(ledger))
    assert (outside / "manifest.json").exists()
