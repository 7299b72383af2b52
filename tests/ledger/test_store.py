"""The front: what is entered is found again, what is refused is refused in one line, and nothing leaves the folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scaling.errors import ScalingError
from scaling.ledger import Ledger
from scaling.ledger.document import seal
from tests.ledger.worker import claimed

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


def test_a_run_is_found_by_its_beginning(ledger: Ledger, runs: list[str]) -> None:
    assert ledger.find(runs[0][:8]) == runs[0]
    for name in range(20):
        ledger.add({"seed": name})
    with pytest.raises(ScalingError):
        ledger.find("")
    with pytest.raises(ScalingError, match="there is no such run"):
        ledger.find(runs[0][:15] + "x")


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
    with claimed(ledger, trunk) as attempt:
        for step in range(1, 8):
            with attempt.checkpoint(step) as folder:
                (folder / "model").write_bytes(b"%d" % step)
        attempt.end("stopped", "the last branch has its start")
    for step, kept in {1: False, 2: True, 3: True, 4: False, 6: True, 7: True}.items():
        assert (ledger.checkpoint(trunk, step) is not None) == kept
    with claimed(ledger, branch) as done:
        done.finish("finished", {"loss": 1.0})
    assert ledger.needed(trunk) == {3}


# The folder


def test_a_folder_is_a_ledger_if_it_has_a_store(tmp_path: Path) -> None:
    with pytest.raises(ScalingError, match="there is no ledger here") as refused:
        Ledger.open(tmp_path / "runs")
    _refused(refused)
    assert not (tmp_path / "runs").exists()
    run = Ledger.create(tmp_path / "runs").add({"seed": 1})
    Ledger.create(tmp_path / "runs")
    assert Ledger.open(tmp_path / "runs").runs() == [run]


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
    ledger.save_plan("study", {"runs": [{"run": run}]})
    attempt = claimed(ledger, run)
    assert ledger.claim(run) is None
    with attempt:
        assert attempt.finish("finished", {"loss": 1.0}).first
    assert ledger.status(run).state == "finished"
