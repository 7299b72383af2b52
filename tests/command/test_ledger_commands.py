"""runs, show, diff, gc and doctor: what they print, and that nothing in a run can harm who looks at it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import scaling
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
                if step == 50:
                    attempt.log.write({"kind": "evaluate", "step": step, "loss": 2.5})
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

    def asked(*words: str) -> str:
        assert main([*words, f"runs={ledger.root}"]) == 0
        printed = capsys.readouterr()
        assert printed.err == ""
        assert "\x1b" not in printed.out
        assert "\x07" not in printed.out
        return printed.out

    return asked


def _strict(text: str) -> Any:
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_runs_lists_every_run(ledger: Ledger, ask: Ask) -> None:
    text = ask("runs")
    expected = ["wide", "finished", "2.0100", "4,000", "diverged", "nan", "stopped", "100/200", "waiting", "4 runs: 1"]
    assert [word for word in [*ledger.runs(), *expected] if word not in text] == []
    rows = {row["run"]: row for row in _strict(ask("runs", "--json"))}
    assert rows.keys() == set(ledger.runs())
    assert [rows[_named(ledger, seed)]["loss"] for seed in (0, 1)] == [2.01, "NaN"]
    data = scaling.runs(runs=ledger.root).data
    assert set(data["model.width"]) == {64, 65, 66, 67}
    assert "<td>wide</td>" in scaling.runs(runs=ledger.root)._repr_html_()


def test_runs_of_a_study_come_in_its_order(ledger: Ledger, ask: Ask) -> None:
    order = [_named(ledger, seed) for seed in (3, 0)]
    ledger.save_plan("mine", {"runs": [{"run": order[0], "name": f"width=16 {EVIL}"}, {"run": order[1]}]})
    rows = _strict(ask("runs", "mine", "--json"))
    assert [(row["run"], row["state"]) for row in rows] == [(order[0], "waiting"), (order[1], "finished")]
    assert [row["name"].partition(" ")[0] for row in rows] == ["width=16", "wide"]  # what the study calls it
    ask("runs", "mine")


def test_show_prints_all_of_a_run(ledger: Ledger, ask: Ask) -> None:
    for seed in range(4):
        run = _named(ledger, seed)
        text = ask("show", run[:10])
        assert f"run {run}" in text
        assert "model.width" in text
        assert ("held-out loss" in text) == (seed < 3), "the losses where there are some"
        document = _strict(ask("show", run, "--json"))
        assert document["spec"] == ledger.spec(run)
        kinds = [entry["kind"] for entry in document["history"]]
        assert kinds.count("train") == (100 if seed < 3 else 0)


def test_diff_of_runs_and_of_configs(ledger: Ledger, ask: Ask) -> None:
    one, other = _named(ledger, 0), _named(ledger, 3)
    differences = _strict(ask("diff", one, other, "--json"))
    assert differences["seed"] == [0, 3]
    assert differences["result.loss"] == [2.01, None]
    assert "model.kind" not in differences
    assert "model.width" in ask("diff", one, other)
    assert ask("diff", one, one) == "no difference\n"
    assert scaling.diff(one, other, runs=ledger.root).document["model.width"] == (64, 67)
    configs = _strict(ask("diff", "gpt2", "llama", "size=tiny", "--json"))
    assert any(key.startswith("model.") for key in configs)
    assert "seed" not in configs


def test_a_reason_of_megabytes_is_shown_by_its_beginning(ledger: Ledger, ask: Ask) -> None:
    attempt = ledger.claim(_named(ledger, 3))
    assert attempt is not None
    with attempt:
        attempt.end("failed", "ValueError: the first words, " + "and then \n\t" * 500_000)
    for words in (("runs",), ("runs", "--json")):
        text = ask(*words)
        assert "ValueError: the first words, and then and" in text
        assert len(text) < 5000
    assert max(map(len, ask("runs").splitlines())) < 400


def test_gc_lists_first_and_frees_then(ledger: Ledger, ask: Ask) -> None:
    finished, diverged, midway = (_named(ledger, seed) for seed in range(3))
    before = sorted(ledger.root.rglob("*"))
    assert "in 1 place can be freed; --free does it" in ask("gc")
    assert sorted(ledger.root.rglob("*")) == before
    document = _strict(ask("gc", "--free", "--json"))
    assert document["freed"] is True
    assert [item["run"] for item in document["items"]] == [diverged]
    assert ledger.checkpoint(midway, 100) is not None, "the run that stopped midway goes on from there"
    assert ask("gc").startswith("0 B")
    (item,) = scaling.gc(weights=True, runs=ledger.root).items
    assert (item["run"], item["kind"]) == (finished, "final weights")
    assert ledger.checkpoint(finished, 100) is not None, "without --free nothing is removed"
    ask("gc", "--weights", "--free")
    assert ledger.checkpoint(finished, 100) is None
    assert ledger.result(finished) is not None


def test_doctor_fits_on_a_screen(ask: Ask, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "canary-77aa")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    text = ask("doctor")
    assert len(text.splitlines()) <= 24
    assert "canary" not in text
    topics = {finding["topic"] for finding in _strict(ask("doctor", "--json"))}
    assert {"versions", "processor", "threads", "devices", "disk", "runs", "W&B"} <= topics
    monkeypatch.setattr("scaling.verbs.runs.PACKAGES", ("no-such-package",))
    assert main(["doctor"]) == 1
    assert "✗  versions   no-such-package is not installed; pip install no-such-package" in capsys.readouterr().out


BAD = [
    *(["runs", "nosuch"], ["runs", "../../etc"], ["runs", "one", "two"], ["runs", "run=elsewhere"]),
    *(["show"], ["show", "ffff"], ["show", "../x"], ["show", "<script>"], ["show", "\x1b[2J"]),
    *(["diff", "one"], ["diff", "ffff", "ffff"], ["diff", "no_such_config", "gpt2"]),
    *(["gc", "name"], ["gc", "--yes"], ["doctor", "name"]),
]


def test_bad_input_is_one_line(ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    none = [[*words, f"runs={tmp_path / 'none'}"] for words in (["runs"], ["show", "ffff"], ["gc"])]
    for words in [*([*words, f"runs={ledger.root}"] for words in BAD), *none]:
        assert main(words) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.count("\n") == 1
        assert "\x1b" not in printed.err
        assert ("there is no ledger here" in printed.err) == (words in none)
    assert not (tmp_path / "none").exists()


def test_a_ledger_with_no_run_or_with_one(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path)
    assert str(scaling.runs(runs=tmp_path)).startswith("0 runs\n")
    assert list(scaling.runs(runs=tmp_path).data) == ["run", "name", "state", "loss"]
    ledger.add({"seed": 1})
    assert str(scaling.runs(runs=tmp_path)).startswith("1 run: 1 waiting\n")


def test_long_lists_are_cut(tmp_path: Path) -> None:
    ledger, runs = Ledger.create(tmp_path), []
    for number, (lr, width) in enumerate([(0.001, 8), (0.01, 8), (0.01, 16)]):
        size = {"width": width, "heads": width // 8, "layers": 1}
        losses = [2.0 + number * (place == 5) + place / 64 for place in range(64)]
        runs.append(ledger.add({"optimizer": {"lr": lr}, "size": size, "seed": 3}))
        attempt = ledger.claim(runs[-1])
        assert attempt is not None
        with attempt:
            attempt.finish("finished", {"loss": losses[-1], "step": 4, "windows": losses})
    shown = str(scaling.show(runs[0], runs=tmp_path))
    assert "… 64 values]" in shown
    assert max(map(len, shown.splitlines())) < 120
    differences = scaling.diff(*runs[:2], runs=tmp_path)
    assert [line.split()[0] for line in str(differences).splitlines()[1:]] == ["optimizer.lr", "result.windows.5"]
    assert len(differences.document["result.windows"][0]) == 64
