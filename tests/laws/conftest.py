"""Simulated runs of a law of N and D, and a fit of forty."""

from typing import Any

import numpy as np
import pandas
import pytest

from scaling.laws import fit, named

LAW = named("chinchilla")
THETA = np.array([1.8172, 482.01, 2085.43, 0.3478, 0.3658])
FARSEER: dict[str, Any] = {
    "form": named("farseer"),
    "theta": np.array([2.2, -0.10, -0.02, 0.33, 0.31, -0.10, 0.39, -0.23, -0.07]),
}


def runs(N, D, noise=0.0, seed=0, form=LAW, theta=THETA):
    """Columns of runs at these sizes, with errors of log loss."""
    errors = noise * np.random.default_rng(seed).standard_normal(len(N))
    return {"N": N, "D": D, "loss": form.predict(theta, {"N": N, "D": D}) * np.exp(errors)}


def study(count=40, noise=0.003, seed=0, **law):
    """Runs at sizes that are drawn at random."""
    ends = np.log([[5e7, 2e10], [1e9, 1e12]])
    N, D = np.exp(np.random.default_rng(seed).uniform(ends[:, :1], ends[:, 1:], (2, count)))
    return runs(N, D, noise, seed + 1000, **law)


def grid(sizes, budgets, noise=0.0, **law):
    """Runs of every size at every number of tokens."""
    N, D = (axis.ravel() for axis in np.meshgrid(sizes, budgets))
    return runs(N, D, noise, **law)


def write(path, columns):
    """The name of a CSV file with these columns."""
    pandas.DataFrame(columns).to_csv(path, index=False)
    return str(path)


def width(interval):
    return interval.high - interval.low


@pytest.fixture(scope="session")
def fitted():
    """Forty runs of Chinchilla's law, fitted."""
    return fit("chinchilla", study())
