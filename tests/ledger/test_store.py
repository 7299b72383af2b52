"""The front: what is entered is found again, what is refused is refused in one line, and nothing leaves the folder."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from scaling.errors import ScalingError
from scaling.ledger import Ledger, layout
from scaling.ledger.document import seal

EVIL = [
    "../escape",
    "..",
    ".",
    "",
    "a/b",
    "/etc/passwd",
    "<script>alert(1)</script>",
    "a\nb",
    "\x1b[2J",
    "a" * 300,
    "nul\0",
]


def _refused(error: pytest.ExceptionInfo[ScalingError]) -> None:
    assert error.value.code == 2
    assert "\n" not in str(error.value)
    assert "\x1b" not in str(error.value)


def test_equal_specs_share_a_run(ledger: Ledger) -> None:
    spec = {"seed": 1, "train": {"tokens": 1000}, "trainer": {"devices": 1}, "name": "first"}
    run = ledger.add(spec)
    assert ledger.add({"train": {"tokens": 1e3}, "trainer": {"devices": 8}, "seed": 1, "name": "second"}) == run
    assert ledger.runs() == [run]
    assert ledger.spec(run) == spec, "as it was first entered"
    assert ledger.add({**spec, "seed": 2}) != run


def test_a_changed_spec_under_the_same_id_is_refused(ledger: Ledger) -> None:
    run = ledger.add({"seed": 1})
    (ledger.folder(run) / "spec.json").write_bytes(seal({"run": run, "spec": {"seed": 2}}))
    with pytest.raises(ScalingError, match="seed is 2 there and 1 here") as refused:
        ledger.add({"seed": 1})
    _refused(refused)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[" * 100_000, b"{\"spec\": \"__import__('os').system('touch x')\"}", b"\xff"]
)
def test_a_damaged_or_malicious_spec_is_mended_by_entering_it_again(ledger: Ledger, content: bytes) -> None:
    run = ledger.add({"seed": 1})
    (ledger.folder(run) / "spec.json").write_bytes(content)
    assert ledger.status(run).state == "waiting"
    with pytest.raises(ScalingError) as refused:
        ledger.spec(run)
    _refused(refused)
    assert ledger.add({"seed": 1}) == run
    assert ledger.spec(run) == {"seed": 1}


@pytest.mark.parametrize("name", EVIL)
def test_names_that_are_no_names(ledger: Ledger, name: str) -> None:
    before = sorted(ledger.root.parent.rglob("*"))
    for call in (ledger.folder, ledger.spec, ledger.status, ledger.find, ledger.plan, ledger.study_folder):
        with pytest.raises(ScalingError) as refused:
            call(name)
        _refused(refused)
    with pytest.raises(ScalingError) as refused:
        ledger.save_plan(name, {"runs": []})
    _refused(refused)
    with pytest.raises(ScalingError) as refused:
        ledger.save_plan("study", {"runs": [{"run": name}]})
    _refused(refused)
    assert sorted(ledger.root.parent.rglob("*")) == before


def test_folders_that_are_no_runs_are_passed_over(ledger: Ledger, runs: list[str]) -> None:
    for name in ("<script>", "0123", ".hidden", "x" * 16):
        (ledger.root / "store" / name).mkdir()
    assert ledger.runs() == sorted(runs)


def test_a_run_is_found_by_its_beginning(ledger: Ledger, runs: list[str]) -> None:
    assert ledger.find(runs[0][:8]) == runs[0]
    for name in range(20):
        ledger.add({"seed": name})
    with pytest.raises(ScalingError):
        ledger.find("")
    with pytest.raises(ScalingError, match="there is no such run"):
        ledger.find(runs[0][:15] + "x")


def test_a_result_is_exclusive_and_a_later_one_is_compared(
    ledger: Ledger, runs: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    first = ledger.claim(runs[0])
    assert first is not None
    late = _next_attempt(ledger, runs[0])
    with first, late:
        assert first.finish("finished", {"loss": 2.5, "circumstances": {"host": "a"}}).first
        with caplog.at_level(logging.WARNING):
            verdict = late.finish("finished", {"loss": 2.75, "circumstances": {"host": "b"}})
    assert not verdict.first
    assert verdict.stands["loss"] == 2.5
    assert verdict.differences == {"loss": (2.5, 2.75)}
    assert "attempt 2 found another result than attempt 1" in caplog.text
    result = ledger.result(runs[0])
    assert result is not None
    assert result["loss"] == 2.5
    told = ledger.attempts(runs[0])[1].exit
    assert told is not None
    assert told["differences"] == {"loss": [2.5, 2.75]}
    assert ledger.status(runs[0]).reason == "attempt 2 found another result"
    assert ledger.claim(runs[0]) is None


def _next_attempt(ledger: Ledger, run: str) -> Any:
    """A second attempt, claimed over the first as if its heartbeat had stopped."""
    from scaling.ledger import attempt

    folder = attempt.claim(ledger.folder(run), 2, ledger.machine, "link")
    assert folder is not None
    return attempt.Attempt(folder, ledger.lease, "link", ())


def test_an_attempt_learns_that_it_was_superseded(ledger: Ledger, runs: list[str]) -> None:
    attempt = ledger.claim(runs[0])
    assert attempt is not None
    attempt._look_around()
    assert not attempt.superseded
    late = _next_attempt(ledger, runs[0])
    attempt._look_around()
    assert attempt.superseded
    late.close()
    attempt.close()


def test_a_damaged_result_is_none_and_is_set_aside(ledger: Ledger, runs: list[str]) -> None:
    for content in (b"", b'{"loss": 1}'):
        (ledger.folder(runs[0]) / "result.json").write_bytes(content)
        assert ledger.result(runs[0]) is None
    attempt = ledger.claim(runs[0])
    assert attempt is not None
    with attempt:
        assert attempt.finish("finished", {"loss": 2.0}).first
    assert len(list(ledger.folder(runs[0]).glob("damaged-*-result.json"))) == 1


@pytest.mark.parametrize("outcome", ["finished", "diverged", "pruned"])
def test_a_result_ends_a_run(ledger: Ledger, runs: list[str], outcome: Any) -> None:
    attempt = ledger.claim(runs[0])
    assert attempt is not None
    with attempt:
        attempt.finish(outcome, {"loss": float("nan")})
    assert ledger.claim(runs[0]) is None
    assert ledger.status(runs[0]).state == outcome


@pytest.mark.parametrize("outcome", ["out_of_memory", "failed", "stopped"])
def test_an_interruption_leaves_it_open(ledger: Ledger, runs: list[str], outcome: Any) -> None:
    attempt = ledger.claim(runs[0])
    assert attempt is not None
    with attempt:
        attempt.end(outcome, "for a reason")
    row = ledger.status(runs[0])
    assert (row.state, row.reason) == (outcome, "for a reason")
    again = ledger.claim(runs[0])
    assert again is not None
    again.close()
    assert again.number == 2


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(RuntimeError("two\nlines"), "failed"), (KeyboardInterrupt(), "stopped"), (SystemExit(143), "stopped")],
)
def test_leaving_by_an_exception_is_told(ledger: Ledger, runs: list[str], error: BaseException, outcome: str) -> None:
    attempt = ledger.claim(runs[0])
    assert attempt is not None

    def leave() -> None:
        with attempt:
            raise error

    with pytest.raises(type(error)):
        leave()
    row = ledger.status(runs[0])
    assert row.state == outcome
    assert "\n" not in str(row.reason)


def test_no_environment_is_written(ledger: Ledger, runs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "canary-5f1c")
    attempt = ledger.claim(runs[0])
    assert attempt is not None
    with attempt, attempt.checkpoint(1) as folder:
        (folder / "model").write_bytes(b"m")
    assert all(b"canary-5f1c" not in path.read_bytes() for path in ledger.root.rglob("*") if path.is_file())


# Studies


def test_a_plan_is_written_once(ledger: Ledger, runs: list[str]) -> None:
    plan = {"question": "which?", "runs": [{"run": run, "size": number} for number, run in enumerate(runs)]}
    ledger.save_plan("first", plan)
    ledger.save_plan("first", plan)
    assert ledger.plan("first") == plan
    assert ledger.studies() == ["first"]
    assert ledger.runs_of("first") == runs
    with pytest.raises(ScalingError, match=r"question is 'which\?' there and 'why\?' here") as refused:
        ledger.save_plan("first", {**plan, "question": "why?"})
    _refused(refused)
    with pytest.raises(ScalingError, match="did you mean 'first'"):
        ledger.plan("frist")


def test_a_trunk_keeps_what_its_branches_need(ledger: Ledger, runs: list[str]) -> None:
    trunk, branch, other = runs
    entries = [{"run": trunk}, {"run": branch, "trunk": {"run": trunk, "step": 2}}]
    ledger.save_plan("one", {"runs": entries})
    ledger.save_plan("two", {"runs": [{"run": trunk}, {"run": other, "trunk": {"run": trunk, "step": 3}}]})
    assert ledger.needed(trunk) == {2, 3}
    attempt = ledger.claim(trunk)
    assert attempt is not None
    with attempt:
        for step in range(1, 8):
            with attempt.checkpoint(step) as folder:
                (folder / "model").write_bytes(b"%d" % step)
        attempt.end("stopped", "the last branch has its start")
    for step, kept in {1: False, 2: True, 3: True, 4: False, 6: True, 7: True}.items():
        assert (ledger.checkpoint(trunk, step) is not None) == kept
    done = ledger.claim(branch)
    assert done is not None
    with done:
        done.finish("finished", {"loss": 1.0})
    assert ledger.needed(trunk) == {3}


# Layout


def test_a_ledger_is_made_once_and_opened_ever_after(tmp_path: Path) -> None:
    with pytest.raises(ScalingError, match="there is no ledger here"):
        Ledger.open(tmp_path / "runs")
    Ledger.create(tmp_path / "runs")
    made = (tmp_path / "runs" / "ledger.json").read_bytes()
    Ledger.create(tmp_path / "runs")
    Ledger.open(tmp_path / "runs")
    assert (tmp_path / "runs" / "ledger.json").read_bytes() == made


def test_a_newer_layout_is_left_alone(ledger: Ledger) -> None:
    (ledger.root / "ledger.json").write_bytes(seal({"version": layout.VERSION + 1, "means": "link"}))
    with pytest.raises(ScalingError, match="newer version") as refused:
        Ledger.open(ledger.root)
    _refused(refused)


def test_an_older_layout_is_migrated(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    turned: list[int] = []
    monkeypatch.setattr(layout, "VERSION", layout.VERSION + 2)
    monkeypatch.setattr(layout, "MIGRATIONS", {1: lambda _: turned.append(1), 2: lambda _: turned.append(2)})
    Ledger.open(ledger.root)
    Ledger.open(ledger.root)
    assert turned == [1, 2]
    assert json.loads((ledger.root / "ledger.json").read_text())["version"] == 3


def test_a_folder_that_cannot_be_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ScalingError) as refused:
        Ledger.create(tmp_path / "file" / "runs")
    _refused(refused)
    if os.geteuid() != 0:
        tmp_path.chmod(0o500)
        with pytest.raises(ScalingError) as refused:
            Ledger.create(tmp_path / "runs")
        _refused(refused)


def test_the_whole_ledger_works_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "no hard links here")

    monkeypatch.setattr(os, "link", refuse)
    ledger = Ledger.create(tmp_path / "runs")
    run = ledger.add({"seed": 1})
    attempt = ledger.claim(run)
    assert attempt is not None
    assert ledger.claim(run) is None
    with attempt:
        assert attempt.finish("finished", {"loss": 1.0}).first
    assert ledger.status(run).state == "finished"
