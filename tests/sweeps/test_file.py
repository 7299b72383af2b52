"""A sweep's file is held to W&B's schema and to our configs before anything is sent: a mistake is one line, exit 2."""

import math
import re
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from scaling.config.document import of_values
from scaling.config.files import shipped
from scaling.sweeps import cells
from scaling.sweeps.cells import Bayes, listed
from scaling.sweeps.distribution import KINDS, distribution
from scaling.sweeps.file import Hyperband, hyperband, of, read
from tests.command_line import refused
from tests.sweeps.conftest import WORDS, tree, write

SWEEPS = sorted((shipped().parent / "sweeps").glob("*.yaml"))


# A text replaces the file's; tests/test_bad_values.py tries any value under any key.
@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"parameters": {"optimizer.lrr": {"values": [1]}}}, r"bad\.yaml:\d+: .*lrr"),
        ({"parameters": {"size.heads": {"values": [1, 4]}, "size.width": {"values": [8, 6]}}}, "width 6"),
        ({"method": "random", "parameters": {"optimizer.lr": {"min": 0.1, "max": 0.01}}}, "swap"),
        ({"parameters": {"optimizer.lr": {"min": 0.01, "max": 0.1}}}, "a grid takes values"),
        (
            {"parameters": {"optimizer": {"parameters": {"lr": {"value": 1}}}, "optimizer.lr": {"value": 2}}},
            r"parameters\.optimizer\.lr: a parameter has its values twice",
        ),
        ({"command": ["python", "train.py", "${args}"]}, "the program is not scaling"),
        (
            {"command": ["${env}", "${interpreter}", "${program}", "train", "decoder", "${args}"]},
            "an interpreter finds no file",
        ),
        ({"command": ["scaling", "train", *WORDS]}, "args_no_hyphens"),
        ({"metric": {"name": "val_loss"}}, "no run logs it"),
        ({"early_terminate": {"type": "hyperband", "min_iter": 9}}, r"evaluate\.points"),
        ({"parameters": {"seed": {"min": 0, "max": 10**9}}}, "1,000,000,001 runs"),
        # What PyYAML, which reads the file for `wandb sweep`, reads otherwise than our own reader, or not at all.
        ("parameters: {seed: {values: [2026-11-20]}}", r"values\.0.*datetime\.date\(2026, 11, 20\)"),
        ("parameters: {train.compile: {values: [yes]}}", r"values\.0='yes': W&B reads it as True; write 'yes'"),
        ("parameters:\n  seed: {values: [1e-3]}", r"bad\.yaml:2: parameters\.seed\.values\.0.*write 0\.001"),
    ],
)
def test_a_bad_sweep_is_one_line(changes, line, tmp_path, capsys):
    path = tmp_path / "bad.yaml"
    path.write_text(changes) if isinstance(changes, str) else write(path, **changes)
    err = refused(capsys, "sweep", path, "--dry-run")
    assert re.match(r"scaling: .*bad\.yaml", err), err
    assert re.search(line, err), err


def test_hyperband_without_a_server_takes_no_run_on_several_devices(tmp_path, capsys):
    rule, devices = {"type": "hyperband", "min_iter": 1}, {"trainer.devices": {"values": [1, 2]}}
    path = write(tmp_path / "bad.yaml", early_terminate=rule, parameters=devices)
    assert "only runs on one device" in refused(capsys, "sweep", path, "--local", f"runs={tmp_path / 'runs'}")
    assert not (tmp_path / "runs").exists()


def test_nested_parameters_are_dotted_none_is_null_and_a_long_row_is_not_written_out(tmp_path):
    """W&B's agent writes Python's None, which is null where the key may be null."""
    clip = {"trainer.gradient_clip_val": {"values": ["None", 1.0]}}
    sweep = read(write(tmp_path / "none.yaml", parameters=clip))
    clips = [cells.experiment(sweep.overrides(cell)).config["trainer.gradient_clip_val"] for cell in listed(sweep)]
    assert clips == [None, 1.0]
    nested = {"optimizer": {"parameters": {"lr": {"value": 0.5}, "weight_decay": {"values": [0.0, 0.1]}}}}
    drawn = list(listed(read(write(tmp_path / "nested.yaml", parameters=nested))))
    assert drawn == [{"optimizer.lr": 0.5, "optimizer.weight_decay": decay} for decay in (0.0, 0.1)]
    sweep = read(write(tmp_path / "long.yaml", run_cap=3, parameters={"seed": {"min": 0, "max": 2**52}}))
    assert [cell["seed"] for cell in listed(sweep)] == [0, 1, 2]
    assert sweep.parameters["seed"].tried[-1] == 2**52
    assert sys.getsizeof(sweep.parameters["seed"].grid) < 100


@pytest.mark.parametrize("sample", [1, pytest.param(cells.SAMPLE, marks=pytest.mark.slow)])
@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_every_shipped_sweep_is_right(path, sample, monkeypatch):
    """The first cell of each, and all values of each parameter. Rows are those of the config."""
    sweep = read(path)
    monkeypatch.setattr(cells, "SAMPLE", sample)
    if sample == 1:
        middle = {key: replace(row, tried=[row.at(0.5)]) for key, row in sweep.parameters.items()}
        sweep = replace(sweep, parameters=middle)
    outlook, _ = cells.check(sweep)
    assert outlook["runs"] is not None
    assert outlook["flops"] > 0
    if "row" in sweep.parameters:
        (table,) = (word for word in sweep.words if "=" not in word)
        rows = yaml.safe_load((shipped() / f"{table}.yaml").read_text())["rows"]
        assert list(sweep.parameters["row"].grid or ()) == list(rows), f"write the rows of {table} into {path.name}"


def test_the_words_are_those_of_the_real_agent(tmp_path):
    from wandb.sdk.launch.sweeps.utils import create_sweep_command_args

    values = [1, 0.001, 1e-7, True, None, "GeLU", [1, 2], {"kind": "WSD", "decay": 0.2}]
    sweep = read(write(tmp_path / "words.yaml", parameters={"optimizer.lr": {"values": values}}))
    for cell in listed(sweep):
        theirs = create_sweep_command_args({"args": {key: {"value": value} for key, value in cell.items()}})
        assert sweep.overrides(cell)[len(sweep.words) :] == theirs["args_no_hyphens"]


UNIFORM = {"min": 0.5, "max": 2.5}
# A line of each kind of number, and scipy's law of it; with a `q` its values are rounded to multiples of it.
LAWS: dict[str, tuple[dict[str, Any], Any]] = {
    "uniform": (UNIFORM, stats.uniform(0.5, 2)),
    "q_uniform": ({"min": 0.0, "max": 2.0, "q": 0.25}, stats.uniform(0, 2)),
    "log_uniform": ({"min": -3.0, "max": 1.0}, stats.loguniform(math.exp(-3), math.e)),
    "q_log_uniform": ({"min": 0.0, "max": 5.0, "q": 2}, stats.loguniform(1, math.exp(5))),
    "inv_log_uniform": ({"min": 0.5, "max": 3.0}, stats.loguniform(math.exp(-3), math.exp(-0.5))),
    "log_uniform_values": ({"min": 1e-4, "max": 1e-1}, stats.loguniform(1e-4, 1e-1)),
    "q_log_uniform_values": ({"min": 8.0, "max": 512.0, "q": 8}, stats.loguniform(8, 512)),
    "inv_log_uniform_values": ({"min": 1e-2, "max": 1.0}, stats.loguniform(1e-2, 1)),
    "normal": ({"mu": 1.0, "sigma": 0.5}, stats.norm(1, 0.5)),
    "q_normal": ({"mu": 10.0, "sigma": 3.0, "q": 0.5}, stats.norm(10, 3)),
    "log_normal": ({"mu": -1.0, "sigma": 0.3}, stats.lognorm(s=0.3, scale=math.exp(-1))),
    "q_log_normal": ({"mu": 2.0, "sigma": 0.5}, stats.lognorm(s=0.5, scale=math.exp(2))),
    "beta": ({"a": 2.0, "b": 3.0}, stats.beta(2, 3)),
    "q_beta": ({"a": 2.0, "b": 3.0, "q": 0.1}, stats.beta(2, 3)),
}
assert {*LAWS, "constant", "categorical", "categorical_w_probabilities", "int_uniform"} == {*KINDS}


@pytest.mark.parametrize("kind", LAWS)
def test_quantiles_are_w_and_bs(kind):
    line, law = LAWS[kind]
    for place in np.linspace(0.001, 0.999, 60):
        value, q = law.ppf(place), line.get("q", 1.0)
        ours = distribution({**line, "distribution": kind}).at(float(place))
        assert ours == pytest.approx(np.round(value / q) * q if kind.startswith("q_") else value, rel=1e-9, abs=1e-12)
        assert type(ours) is (type(q) if kind.startswith("q_") else float)


def test_values_are_equally_likely_unless_they_have_chances():
    places = [0.05, 0.2, 0.21, 0.69, 0.71, 0.999]
    for line, values in (
        ({"value": 3}, [3] * 6),
        ({"values": ["a", "b", "c"]}, [*"aaaccc"]),
        ({"values": ["a", "b", "c"], "probabilities": [0.2, 0.5, 0.3]}, [*"aabbcc"]),
        ({"min": 2, "max": 9}, [2, 3, 3, 7, 7, 9]),
    ):
        assert [distribution(line).at(place) for place in places] == values


def test_a_grid_is_the_servers():
    """The product, parameters in the order of their names, the last one fastest."""
    clip = {"distribution": "q_uniform", "min": 1, "max": 2, "q": 0.25}
    parameters = {"seed": {"values": [3, 1]}, "optimizer.lr": {"min": 4, "max": 5}, "clip": clip}
    expected = [
        {"clip": 1 + 0.25 * n, "optimizer.lr": lr, "seed": seed} for n in range(4) for lr in (4, 5) for seed in (3, 1)
    ]
    assert list(listed(of("x", of_values("x", tree(parameters=parameters))))) == expected


def transcribed(rule: Hyperband, history: list[float], others: list[list[float]]) -> bool:
    """W&B's rule once more, with numpy: thresholds at every bracket first, then the run at the last it reached."""
    everyone = [np.array(one) for one in (history, *others)]
    threshold, at = None, None
    for bracket in rule.brackets:
        if bracket >= len(history):
            break
        there = np.sort([one[bracket] for one in everyone if len(one) > bracket])
        threshold, at = there[int(1.0 / rule.eta * len(there))], bracket
    if at is None or threshold is None:
        return False
    return bool((history[at] if rule.strict else np.min(history)) > threshold)


losses = st.lists(st.integers(0, 9).map(float), min_size=1, max_size=12)


@settings(max_examples=50)
@given(losses, st.lists(losses, max_size=8), st.sampled_from([2, 3]), st.booleans())
def test_hyperband_stops_what_w_and_b_stops(history, others, eta, strict):
    rule = hyperband({"type": "hyperband", "min_iter": 2, "eta": eta, "strict": strict})
    assert rule.stops(history, others) == transcribed(rule, history, others)
    for line, brackets in (({"min_iter": 3}, (3, 9, 27)), ({"max_iter": 100, "s": 9, "eta": 3}, (1, 3, 11))):
        assert hyperband({"type": "hyperband", **line}).brackets[:3] == brackets


def test_bayes_finds_the_better_end_and_remembers(tmp_path):
    """In a folder that is not there yet; large rates diverge."""
    parameters = {"optimizer.lr": UNIFORM, "seed": {"values": [1, 2, 3]}}
    sweep, seen = of("x", of_values("x", tree(method="bayes", run_cap=30, parameters=parameters))), []
    folder = tmp_path / "new" / "folder"
    drawn = folder / "drawn.jsonl"
    for _ in range(2):  # the second controller goes on where the first was killed
        search = Bayes(sweep, drawn)
        for number, cell in zip(range(30 if seen else 15), search.cells(), strict=False):
            if number >= len(seen):
                seen.append(cell)
            assert cell == seen[number]
            rate = cell["optimizer.lr"]
            search.hear(number, *(("finished", abs(rate - 0.6)) if rate < 1.5 else ("diverged", math.nan)))
    assert next(search.cells(), None) is None
    late = [abs(cell["optimizer.lr"] - 0.6) for cell in seen[15:]]
    assert np.median(late) < 0.5  # uniform draws lie 0.9 away
    assert all(cell["seed"] in (1, 2, 3) for cell in seen)
    assert len({cell["optimizer.lr"] for cell in seen}) == 30  # the second draws nothing again
    drawn.write_text(drawn.read_text()[:-5])  # cut by a kill
    again = Bayes(sweep, drawn).cells()
    assert [next(again) for _ in range(29)] == seen[:29]
