"""runs, show, diff, gc and doctor: what they print, and that nothing in a run can harm who looks at it."""

import math
from pathlib import Path
from typing import Any

import pytest

import scaling
from scaling.ledger import Ledger
from scaling.verbs.command_line import main
from tests.command_line import printed, refused

EVIL = "\x1b[2J\x1b]0;owned\x07<script>alert(1)</script>"


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """A finished run, a diverged one of an evil name, one that stopped midway and one that waits."""
    ledger = Ledger.create(tmp_path / "runs")
    runs = [
        ledger.add({"name": name, "seed": seed, "model": {"kind": "Decoder", "width": 64 + seed}})
        for seed, name in enumerate(["wide", EVIL, "midway", "later"])
    ]
    for seed, run in enumerate(runs[:3]):
        with ledger.claim(run) as attempt:
            attempt.log.write({"kind": "train", "step": 100, "steps": 200, "loss": 2.1, "tokens_per_second": 5000.0})
            attempt.log.write({"kind": "evaluate", "step": 100, "loss": 2.5})
            with attempt.checkpoint(100) as folder:
                (folder / "model").write_bytes(bytes(5000))
            if seed == 0:
                more = {"windows": [2.0] * 64, "circumstances": {"tokens_per_second": 4000.0}}
                attempt.finish("finished", {"loss": 2.01, "step": 100, **more})
            elif seed == 1:
                attempt.finish("diverged", {"loss": math.nan, "step": 100})
            else:
                attempt.end("stopped", EVIL)
    return ledger


@pytest.fixture
def names(ledger: Ledger) -> list[str]:
    """The runs by their seeds."""
    return sorted(ledger.runs(), key=lambda run: ledger.spec(run)["seed"])


@pytest.fixture
def ask(ledger: Ledger, capsys: pytest.CaptureFixture[str]):
    """Run a command on the ledger and return what it printed, which acts on no terminal."""

    def asked(*words: str) -> Any:
        found = printed(capsys, *words, f"runs={ledger.root}")
        assert not {"\x1b", "\x07"} & {*str(found)}
        return found

    return asked


def test_runs_lists_every_run_and_those_of_a_study_in_its_order(ledger: Ledger, names: list[str], ask) -> None:
    text = ask("runs")
    expected = ["wide", "finished", "2.0100", "4,000", "diverged", "nan", "stopped", "100/200", "waiting", "4 runs: 1"]
    assert [word for word in [*names, *expected] if word not in text] == []
    rows = {row["run"]: row for row in ask("runs", "--json")}
    assert rows.keys() == set(names)
    assert [rows[name]["loss"] for name in names[:2]] == [2.01, "NaN"]
    html = scaling.runs(runs=ledger.root)._repr_html_()
    assert ">wide</td>" in html
    assert "<script>" not in html
    ledger.save_plan("mine", {"runs": [{"run": names[3], "name": f"width=16 {EVIL}"}, {"run": names[0]}]})
    rows = ask("runs", "mine", "--json")
    assert [row["run"] for row in rows] == [names[3], names[0]]
    assert [row["name"].partition(" ")[0] for row in rows] == ["width=16", "wide"]  # what the study calls it
    assert str(scaling.runs(runs=Ledger.create(ledger.root / "empty").root)).startswith("0 runs\n")


def test_show_prints_all_of_a_run_and_diff_what_differs(ledger: Ledger, names: list[str], ask, tmp_path: Path) -> None:
    for seed, run in enumerate(names):
        text = ask("show", run[:10])
        assert f"run {run}" in text
        assert ("held-out loss" in text) == (seed < 3), "the losses where there are some"
        assert max(map(len, text.splitlines())) < 120
        assert ask("show", run, "--json")["spec"] == ledger.spec(run)
    assert "… 64 values]" in ask("show", names[0]), "long lists are cut"
    differences = ask("diff", names[0], names[3], "--json")
    assert (differences["seed"], differences["result.loss"]) == ([0, 3], [2.01, None])
    assert "model.kind" not in differences
    assert ask("diff", names[0], names[0]) == "no difference\n"
    assert "model.position.kind" in ask("diff", "gpt2", "llama", "size=tiny", "--json")
    files = [tmp_path / f"{name}.yaml" for name in "ab"]
    for file in files:
        file.write_text(f"base: model/decoder\nlog.tags: [one, two, three, four, five, six, {file.stem}]\n")
    (line,) = (line.split() for line in ask("diff", *map(str, files)).splitlines() if "log.tags" in line)
    assert line == ["log.tags.6", '"a"', '"b"'], "long lists by the places that differ"
    with ledger.claim(names[3]) as attempt:
        attempt.end("failed", "ValueError: the first words, " + "and then \n\t" * 500_000)
    shown = ask("runs")  # megabytes are shown by their beginning
    assert "ValueError: the first words, and then and" in shown
    assert len(shown) < 5000


def test_gc_lists_first_and_frees_then(ledger: Ledger, names: list[str], ask) -> None:
    finished, diverged, midway, _ = names
    before = sorted(ledger.root.rglob("*"))
    assert "in 1 place can be freed; --free does it" in ask("gc")
    assert sorted(ledger.root.rglob("*")) == before
    assert [item["run"] for item in ask("gc", "--free", "--json")["items"]] == [diverged]
    assert ledger.checkpoint(midway, 100) is not None, "the run that stopped midway goes on from there"
    assert ask("gc").startswith("0 B")
    (item,) = scaling.gc(weights=True, runs=ledger.root).items
    assert (item["run"], item["kind"]) == (finished, "final weights")
    assert ledger.checkpoint(finished, 100) is not None, "without --free nothing is removed"
    ask("gc", "--weights", "--free")
    assert ledger.checkpoint(finished, 100) is None
    assert ledger.result(finished) is not None


def test_doctor_fits_on_a_screen(ask, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "canary-77aa")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    text = ask("doctor")
    assert len(text.splitlines()) <= 24
    assert "canary" not in text
    topics = {finding["topic"] for finding in ask("doctor", "--json")}
    assert {"versions", "processor", "threads", "devices", "disk", "runs", "W&B"} <= topics
    monkeypatch.setattr("scaling.verbs.runs.PACKAGES", ("no-such-package",))
    assert main(["doctor"]) == 1
    assert "✗  versions   no-such-package is not installed; pip install no-such-package" in capsys.readouterr().out


def test_bad_input_is_one_line(ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = ["runs nosuch", "runs ../../etc", "runs run=elsewhere", "show", "show ffff", "show ../x", "show \x1b[2J"]
    bad += ["diff ffff ffff", "diff no_such_config gpt2", "gc --yes"]
    cases = [*((line, ledger.root) for line in bad), *((line, tmp_path / "none") for line in ("runs", "gc"))]
    for line, folder in cases:
        error = refused(capsys, *line.split(), f"runs={folder}")
        assert "\x1b" not in error
        assert ("there is no ledger here" in error) == (folder != ledger.root)
    assert not (tmp_path / "none").exists()
