"""Grid, random, bayes and hyperband, held to W&B's public definitions as the test server draws by them."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.sweeps.distribution import KINDS, distribution
from scaling.sweeps.file import Hyperband, hyperband, of
from scaling.sweeps.search import listed, searched
from tests.sweeps.conftest import tree
from tests.wandb_server import draw

LINES = {
    "constant": {"value": 3},
    "categorical": {"values": ["a", "b", "c"]},
    "categorical_w_probabilities": {"values": ["a", "b", "c"], "probabilities": [0.2, 0.5, 0.3]},
    "int_uniform": {"min": 2, "max": 9},
    "uniform": {"min": 0.5, "max": 2.5},
    "q_uniform": {"min": 0.0, "max": 2.0, "q": 0.25, "distribution": "q_uniform"},
    "log_uniform": {"min": -3.0, "max": 1.0, "distribution": "log_uniform"},
    "q_log_uniform": {"min": 0.0, "max": 5.0, "q": 2, "distribution": "q_log_uniform"},
    "inv_log_uniform": {"min": 0.5, "max": 3.0, "distribution": "inv_log_uniform"},
    "log_uniform_values": {"min": 1e-4, "max": 1e-1, "distribution": "log_uniform_values"},
    "q_log_uniform_values": {"min": 8.0, "max": 512.0, "q": 8, "distribution": "q_log_uniform_values"},
    "inv_log_uniform_values": {"min": 1e-2, "max": 1.0, "distribution": "inv_log_uniform_values"},
    "normal": {"mu": 1.0, "sigma": 0.5, "distribution": "normal"},
    "q_normal": {"mu": 10.0, "sigma": 3.0, "q": 0.5, "distribution": "q_normal"},
    "log_normal": {"mu": -1.0, "sigma": 0.3, "distribution": "log_normal"},
    "q_log_normal": {"mu": 2.0, "sigma": 0.5, "distribution": "q_log_normal"},
    "beta": {"a": 2.0, "b": 3.0, "distribution": "beta"},
    "q_beta": {"a": 2.0, "b": 3.0, "q": 0.1, "distribution": "q_beta"},
}


assert {*LINES} == {*KINDS}


@pytest.mark.parametrize("kind", LINES)
@given(share=st.floats(0.001, 0.999))
def test_quantiles_are_w_and_bs(kind, share):
    ours, theirs = distribution(LINES[kind]).at(share), draw.quantile(LINES[kind], share)
    assert type(ours) is type(theirs)
    if isinstance(theirs, float):
        step = LINES[kind].get("q", 1.0) if kind.startswith("q_") else 0.0
        # Where a step ends, two roundings of the same number may differ.
        assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-12) or abs(ours - theirs) == pytest.approx(step)
    elif isinstance(theirs, int) and kind.startswith("q_"):
        assert abs(ours - theirs) in (0, LINES[kind]["q"])
    elif kind != "int_uniform" or abs(share * 8 - round(share * 8)) > 1e-9:  # where two values meet, either will do
        assert ours == theirs


@pytest.mark.parametrize(
    "parameters",
    [
        {"seed": {"values": [3, 1, 2]}, "optimizer.lr": {"values": [0.1, 0.2]}, "train.batch": {"value": 4}},
        {"seed": {"min": 1, "max": 5}},
        {
            "trainer.gradient_clip_val": {"distribution": "q_uniform", "min": 1, "max": 2, "q": 0.25},
            "seed": {"values": [1, 2]},
        },
    ],
)
def test_a_grid_is_the_servers(parameters):
    swept = tree(parameters=parameters)
    assert list(listed(of("x", swept))) == list(draw.configs(swept, random.Random(0)))


@pytest.mark.parametrize(
    ("told", "brackets"),
    [
        ({"min_iter": 3}, (3, 9, 27)),
        ({"min_iter": 2, "eta": 2}, (2, 4, 8)),
        ({"max_iter": 27, "s": 2}, (3, 9)),
        ({"max_iter": 5, "s": 2, "eta": 2}, (1, 2)),
        ({"max_iter": 100, "s": 9, "eta": 3}, (1, 3, 11)),
    ],
)
def test_brackets(told, brackets):
    assert hyperband({"type": "hyperband", **told}).brackets[:3] == brackets


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


@given(losses, st.lists(losses, max_size=8), st.sampled_from([2, 3]), st.booleans())
def test_hyperband_stops_what_w_and_b_stops(history, others, eta, strict):
    rule = hyperband({"type": "hyperband", "min_iter": 2, "eta": eta, "strict": strict})
    assert rule.stops(history, others) == transcribed(rule, history, others)


def test_bayes_finds_the_better_end_and_remembers(tmp_path):
    swept = tree(
        method="bayes", run_cap=30, parameters={"optimizer.lr": LINES["uniform"], "seed": {"values": [1, 2, 3]}}
    )
    sweep, seen = of("x", swept), []
    for _ in range(2):  # the second controller goes on where the first was killed
        search = searched(sweep, tmp_path)
        for number in range(30 if seen else 15):
            cell = search.draw()
            assert cell is not None
            if number >= len(seen):
                seen.append(cell)
            assert cell == seen[number]
            search.hear(number, "finished", abs(cell["optimizer.lr"] - 0.6))
    assert search.draw() is None
    late = [abs(cell["optimizer.lr"] - 0.6) for cell in seen[15:]]
    assert np.median(late) < 0.5  # uniform draws lie 0.9 away
    assert all(cell["seed"] in (1, 2, 3) for cell in seen)
