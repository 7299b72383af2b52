"""What the W&B server draws for a sweep: grid and random search, written down from W&B's public definitions.

Test code, and deliberately not ours: nothing here imports `scaling`, so that our own search can be held to it.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from typing import Any, cast

import numpy as np
from scipy import stats


def configs(sweep: Mapping[str, Any], chance: random.Random) -> Iterator[dict[str, Any]]:
    """The configs of a sweep, one after the other, ended only where the method ends."""
    parameters = {name: _filled(line) for name, line in sorted(sweep["parameters"].items())}
    if sweep["method"] == "grid":
        axes = {name: _values(line) for name, line in parameters.items()}
        for values in itertools.product(*axes.values()):
            yield dict(zip(axes, values))
        return
    while True:
        yield {name: quantile(line, chance.random()) for name, line in parameters.items()}


def _filled(line: Mapping[str, Any]) -> dict[str, Any]:
    line = dict(line)
    if "distribution" not in line:
        if "value" in line:
            line["distribution"] = "constant"
        elif "probabilities" in line:
            line["distribution"] = "categorical_w_probabilities"
        elif "values" in line:
            line["distribution"] = "categorical"
        elif all(isinstance(line[end], int) for end in ("min", "max")):
            line["distribution"] = "int_uniform"
        else:
            line["distribution"] = "uniform"
    return line


def _values(line: Mapping[str, Any]) -> list[Any]:
    kind = line["distribution"]
    if kind == "constant":
        return [line["value"]]
    if kind == "categorical":
        return list({repr(value): value for value in line["values"]}.values())
    if kind == "int_uniform":
        return list(range(line["min"], line["max"] + 1))
    assert kind == "q_uniform", f"a grid over {kind}"
    return np.arange(line["min"], line["max"], line.get("q", 1.0)).tolist()


def quantile(line: Mapping[str, Any], x: float) -> Any:
    """The value of a parameter at the share `x` of its distribution."""
    line = _filled(line)
    kind, low, high = line["distribution"], cast(Any, line.get("min")), cast(Any, line.get("max"))
    mu, sigma = line.get("mu", 0.0), line.get("sigma", 1.0)
    a, b = line.get("a", 1), line.get("b", 1)
    if kind == "constant":
        return line["value"]
    if kind == "categorical":
        return line["values"][min(int(x * len(line["values"])), len(line["values"]) - 1)]
    if kind == "categorical_w_probabilities":
        return line["values"][int(np.searchsorted(np.cumsum(line["probabilities"]), x))]
    if kind == "int_uniform":
        return int(stats.randint.ppf(x, low, high + 1))
    quantiles = {
        "uniform": lambda: stats.uniform.ppf(x, low, high - low),
        "log_uniform": lambda: np.exp(stats.uniform.ppf(x, low, high - low)),
        "log_uniform_values": lambda: np.exp(stats.uniform.ppf(x, np.log(low), np.log(high) - np.log(low))),
        "inv_log_uniform": lambda: np.exp(-stats.uniform.ppf(1 - x, low, high - low)),
        "inv_log_uniform_values": lambda: np.exp(
            -stats.uniform.ppf(1 - x, np.log(1 / high), np.log(1 / low) - np.log(1 / high))
        ),
        "normal": lambda: stats.norm.ppf(x, mu, sigma),
        "log_normal": lambda: stats.lognorm.ppf(x, s=sigma, scale=np.exp(mu)),
        "beta": lambda: stats.beta.ppf(x, a, b),
    }
    if not kind.startswith("q_"):
        return float(quantiles[kind]())
    step = line.get("q", 1.0)
    value = np.round(quantiles[kind.removeprefix("q_")]() / step) * step
    return int(value) if isinstance(step, int) else float(value)
