"""runs, show, diff, gc and doctor: what they print, and that nothing in a run can harm who looks at it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaling.cli import main
from scaling.ledger import Ledger

EVIL = "\x1b[2J\x1b]0;owned\x07<script>alert(1)</script>"

Ask = Callable[..., str]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """A finished run, a diverged one of an evil name, one that stopped midway and one that waits."""
    ledger = Ledger.create(tmp_path / "runs")
    for seed, name in enumerate(["wide", EVIL, "midway", "later"]):
        run = ledger.add({"name": name, "seed": seed, "model": {"kind": "Decoder", "width": 64 + seed}})
        if name == "later":
            break
        attempt = ledger.claim(run)
        assert attempt is not None
        with attempt:
            for step in range(1, 101):
                entry = {"kind": "train", "step": step, "steps": 200, "loss": 2 + 1 / step, "tokens_per_second": 5000.0}
                attempt.log.write(entry)
            with attempt.checkpoint(100) as folder:
                (folder / "model").write_bytes(bytes(5000))
            if seed == 0:
                attempt.finish("finished", {"loss": 2.01, "step": 100, "circumstances": {"tokens_per_second": 4000.0}})
            elif seed == 1:
                attempt.finish("diverged", {"loss": math.nan, "step": 100})
            else:
                attempt.end("stopped", EVIL)
    return ledger


def _named(ledger: Ledger, seed: int) -> str:
    return next(run for run in ledger.runs() if ledger.spec(run)["seed"] == seed)


@pytest.fixture
def ask(ledger: Ledger, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Run a command on the ledger and return what it printed; nothing may have gone to standard error."""

    def asked(*words: str, code: int = 0) -> str:
        assert main([*words, f"runs={ledger.root}"]) == code
        said = capsys.readouterr()
        assert said.err == ""
        assert "\x1b" not in said.out
        assert "\x07" not in said.out
        return said.out

    return asked


def _strict(text: str) -> Any:
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_runs_lists_every_run(ledger: Ledger, ask: Ask) -> None:
    said = ask("runs")
    for run in ledger.runs():
        assert run in said
    for word in (
        "wide",
        "finished",
        "2.0100",
        "4,000",
        "diverged",
        "nan",
        "stopped",
        "100/200",
        "waiting",
        "4 runs: 1",
    ):
        assert word in said


def test_runs_of_a_study_come_in_its_order(ledger: Ledger, ask: Ask) -> None:
    order = [_named(ledger, seed) for seed in (3, 0)]
    ledger.save_plan("mine", {"runs": [{"run": order[0], "name": f"width=16 {EVIL}"}, {"run": order[1]}]})
    told = _strict(ask("runs", "mine", "--json"))
    assert [row["run"] for row in told] == order
    assert [row["state"] for row in told] == ["waiting", "finished"]
    assert told[0]["name"].startswith("width=16 ")  # what the study calls it
    assert told[1]["name"] == "wide"
    ask("runs", "mine")


def test_runs_as_json(ledger: Ledger, ask: Ask) -> None:
    told = {row["run"]: row for row in _strict(ask("runs", "--json"))}
    assert told.keys() == set(ledger.runs())
    assert told[_named(ledger, 0)]["loss"] == 2.01
    assert told[_named(ledger, 1)]["loss"] == "NaN"


def test_an_empty_ledger_has_no_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Ledger.create(tmp_path / "empty")
    assert main(["runs", f"runs={tmp_path / 'empty'}"]) == 0
    assert "0 runs" in capsys.readouterr().out


@pytest.mark.parametrize("seed", range(4))
def test_show_tells_all_of_a_run(ledger: Ledger, ask: Ask, seed: int) -> None:
    run = _named(ledger, seed)
    said = ask("show", run[:10])
    assert f"run {run}" in said
    assert "model.width" in said
    assert ("train loss" in said) == (seed < 3), "a curve where there is one"
    assert ("⠀" in said or "⠁" in said) == (seed < 3)
    told = _strict(ask("show", run, "--json"))
    assert told["spec"] == ledger.spec(run)
    assert len([entry for entry in told["history"] if entry["kind"] == "train"]) == (100 if seed < 3 else 0)


def test_diff_of_runs(ledger: Ledger, ask: Ask) -> None:
    one, other = _named(ledger, 0), _named(ledger, 3)
    told = _strict(ask("diff", one, other, "--json"))
    assert told["seed"] == [0, 3]
    assert told["model.width"] == [64, 67]
    assert told["result.loss"] == [2.01, None]
    assert "model.kind" not in told
    assert "model.width" in ask("diff", one, other)
    assert ask("diff", one, one) == "no difference\n"


def test_diff_of_configs(ask: Ask) -> None:
    told = _strict(ask("diff", "gpt2", "llama", "size=tiny", "--json"))
    assert any(key.startswith("model.") for key in told)
    assert "seed" not in told


def test_a_reason_of_megabytes_is_shown_by_its_beginning(ledger: Ledger, ask: Ask) -> None:
    run = _named(ledger, 3)
    attempt = ledger.claim(run)
    assert attempt is not None
    with attempt:
        attempt.end("failed", "ValueError: the first words, " + "and then \n\t" * 500_000)
    for words in (("runs",), ("runs", "--json")):
        told = ask(*words)
        assert "ValueError: the first words, and then and" in told
        assert len(told) < 5000
    assert max(map(len, ask("runs").splitlines())) < 400


def test_gc_says_first_and_frees_then(ledger: Ledger, ask: Ask) -> None:
    before = sorted(ledger.root.rglob("*"))
    assert "5." in ask("gc")
    assert sorted(ledger.root.rglob("*")) == before
    told = _strict(ask("gc", "--free", "--json"))
    assert told["freed"] is True
    assert {item["run"] for item in told["items"]} == {_named(ledger, 1)}
    assert ledger.checkpoint(_named(ledger, 2), 100) is not None, "the run that stopped midway goes on from there"
    assert ask("gc").startswith("0 B")


def test_gc_frees_final_weights_only_where_they_are_named(ledger: Ledger, ask: Ask) -> None:
    finished = _named(ledger, 0)
    ask("gc", "--free")
    assert ledger.checkpoint(finished, 100) is not None
    (item,) = _strict(ask("gc", "--weights", "--json"))["items"]
    assert (item["run"], item["kind"]) == (finished, "final weights")
    assert ledger.checkpoint(finished, 100) is not None, "without --free nothing is removed"
    ask("gc", "--weights", "--free")
    assert ledger.checkpoint(finished, 100) is None
    assert ledger.result(finished) is not None


def test_doctor_fits_on_a_screen(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "canary-77aa")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    said = ask("doctor")
    assert len(said.splitlines()) <= 24
    assert "canary" not in said
    topics = {finding["topic"] for finding in _strict(ask("doctor", "--json"))}
    assert {"versions", "processor", "threads", "devices", "disk", "links", "runs", "W&B"} <= topics


@pytest.mark.parametrize(
    "words",
    [
        ["runs", "nosuch"],
        ["runs", "../../etc"],
        ["runs", "one", "two"],
        ["runs", "run=elsewhere"],
        ["show"],
        ["show", "ffff"],
        ["show", "../x"],
        ["show", "<script>"],
        ["show", "\x1b[2J"],
        ["diff", "one"],
        ["diff", "ffff", "ffff"],
        ["diff", "no_such_config", "gpt2"],
        ["gc", "name"],
        ["gc", "--yes"],
        ["doctor", "name"],
    ],
    ids=" ".join,
)
def test_bad_input_is_one_line(ledger: Ledger, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert main([*words, f"runs={ledger.root}"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "\x1b" not in said.err


@pytest.mark.parametrize("verb", ["runs", "show", "gc"])
def test_no_ledger_is_one_line(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, *(["ffff"] if verb == "show" else []), f"runs={tmp_path / 'none'}"]) == 2
    assert "there is no ledger here" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def _finished(ledger: Ledger, spec: dict[str, Any], losses: list[float]) -> str:
    run = ledger.add(spec)
    attempt = ledger.claim(run)
    assert attempt is not None
    with attempt:
        attempt.finish("finished", {"loss": losses[-1], "step": 4, "windows": losses})
    return run


@pytest.fixture
def unnamed(tmp_path: Path) -> tuple[Ledger, list[str]]:
    """Three runs without names: two learning rates, two widths with their heads, and results with 64 losses each."""
    ledger = Ledger.create(tmp_path / "unnamed")
    runs = []
    for number, (lr, width) in enumerate([(0.001, 8), (0.01, 8), (0.01, 16)]):
        size = {"width": width, "heads": width // 8, "layers": 1}
        losses = [2.0 + number * (place == 5) + place / 64 for place in range(64)]
        runs.append(_finished(ledger, {"optimizer": {"lr": lr}, "size": size, "seed": 3}, losses))
    return ledger, runs


def test_runs_are_named_by_what_differs_between_them(
    unnamed: tuple[Ledger, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    ledger, runs = unnamed
    assert main(["runs", f"runs={ledger.root}", "--json"]) == 0
    named = {row["run"]: row["name"] for row in json.loads(capsys.readouterr().out)}
    assert [named[run] for run in runs] == ["lr=0.001 width=8", "lr=0.01 width=8", "lr=0.01 width=16"]
    assert main(["runs", f"runs={ledger.root}"]) == 0
    assert "lr=0.001 width=8" in capsys.readouterr().out


def test_one_run_is_counted_as_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger = Ledger.create(tmp_path / "one")
    _finished(ledger, {"seed": 1}, [2.0])
    assert main(["runs", f"runs={ledger.root}"]) == 0
    assert "1 run: 1 finished" in capsys.readouterr().out


def test_a_long_list_is_shown_by_its_beginning(
    unnamed: tuple[Ledger, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    ledger, runs = unnamed
    assert main(["show", runs[0], f"runs={ledger.root}"]) == 0
    told = capsys.readouterr().out
    assert "… 64 values]" in told
    assert max(map(len, told.splitlines())) < 120


def test_diff_shows_only_the_places_of_a_list_that_differ(
    unnamed: tuple[Ledger, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    ledger, runs = unnamed
    assert main(["diff", *runs[:2], f"runs={ledger.root}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["optimizer.lr", "result.windows.5"]
    assert main(["diff", *runs[:2], f"runs={ledger.root}", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["result.windows"][0]) == 64
