"""`scaling mixture`: the best proportions of domains whose laws are known."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import scaling
from scaling.base.errors import ScalingError
from scaling.cli import main

BEST = np.log(1.5) / 3  # where exp(2 p₂) + 3 exp(−p₂) is lowest: exp(3 p₂) = 3/2


def swarm(noise=1e-3, most=0.98):
    """Two domains whose losses pull apart."""
    rng = np.random.default_rng(0)
    second = np.linspace(0.005, most, 24)
    losses = np.array([1 + np.exp(2 * second), 1 + 3 * np.exp(-second)]) * np.exp(noise * rng.standard_normal((2, 24)))
    return {
        "p_1": 1 - second,
        "p_2": second,
        "N": np.full(24, 1e6),
        "loss": losses.mean(0),
        **{f"loss_domain_{place}": column for place, column in enumerate(losses, 1)},
    }


def test_the_best_mixture_of_known_laws_is_found():
    document = scaling.mixture(swarm()).to_json()
    second = document["proportions"]["p_2"]
    assert second["low"] < BEST < second["high"] < second["low"] + 0.02
    lowest = 1 + (np.exp(2 * BEST) + 3 * np.exp(-BEST)) / 2
    assert document["loss"]["estimate"] == pytest.approx(lowest, rel=1e-3)
    assert document["gain"]["low"] > 0
    assert document["law"] == "mixture_exponential_2"


def test_weights_move_the_mixture_to_a_domain():
    heavier = scaling.mixture(swarm(), weights={"loss_domain_2": 3.0}).to_json()
    # exp(3 p₂) = 9/2
    assert heavier["proportions"]["p_2"]["estimate"] == pytest.approx(np.log(4.5) / 3, abs=0.01)


def test_a_mixture_that_no_run_was_near_is_said_to_be_one():
    assert "train one there" in str(scaling.mixture(swarm(most=0.6), weights={"loss_domain_2": 9.0}))


def test_the_command_prints_the_table_and_refuses_what_has_no_proportions(tmp_path, capsys):
    columns = swarm()
    path = tmp_path / "points.csv"
    pd.DataFrame(columns).to_csv(path, index=False)
    assert main(["mixture", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"] == 24
    with pytest.raises(ScalingError, match="no proportions"):
        scaling.mixture({"N": [1e6, 2e6], "loss": [3.0, 2.9]})
    with pytest.raises(ScalingError, match="no weight of a loss"):
        scaling.mixture(columns, weights={"loss_domain_9": 1.0})
    with pytest.raises(ScalingError, match="the law exponential has no size; take --law joint"):
        scaling.mixture(columns, at={"N": 1e9})
    with pytest.raises(ScalingError, match="the law joint needs the size of the model; write --at N=1e9"):
        scaling.mixture(columns, law="joint")
