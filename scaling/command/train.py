"""Train one run to its result, or resume it, or print its earlier result.

scaling train decoder size=ladder/100k data=python train.tokens=20M
scaling train gpt2 size=tiny optimizer.lr=1e-3 schedule.kind=WSD seed=1
scaling train study=quickstart run=0123456789abcdef     one run of a planned study
scaling train decoder size=ladder/100k --again          a finished run again, compared with its result
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any

from scaling import config
from scaling.command.document import numbered
from scaling.errors import ScalingError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    config.add_arguments(parser)
    parser.add_argument("--again", action="store_true", help="train a finished run again and compare the results")
    parser.add_argument("--json", action="store_true", help="the result as one JSON document")


def run(arguments: argparse.Namespace) -> int:
    from scaling.api.runs import train_config

    of_study = any(word.startswith("study=") for word in arguments.words)
    resolved = _resolved(arguments, of_study)
    if of_study:
        from scaling.sweeps.study import prepare

        prepare(arguments.words)
    trained = train_config(resolved, again=arguments.again)

    from scaling.training.ranks import first

    if not first():
        return 0
    again = {} if trained.differences is None else {"differences": trained.differences}
    result = {**(trained.result or {}), "already": trained.already, **again}
    if arguments.json:
        print(json.dumps(numbered(result), indent=2))
    else:
        print(summary(result))
    return 0


def _resolved(arguments: argparse.Namespace, of_study: bool) -> config.Config:
    if of_study:
        from scaling.sweeps.study import planned

        return planned(arguments.words)
    configs = config.configs(arguments)
    if len(configs) > 1:
        raise ScalingError("one run at a time", key="NAME", value=" ".join(configs), fix="a study trains many")
    (resolved,) = configs.values()
    return resolved


def summary(result: Mapping[str, Any]) -> str:
    text = f"run {result['run']}: {result['outcome']}" + (" before" if result["already"] else "")
    if result["loss"] is None:
        return f"{text}: {result['reason']}"
    if "differences" in result:
        text += "; " + _compared(result["differences"])
    excess = f", {result['excess']:.4f} above the entropy" if "excess" in result else ""
    best = f", best at step {result['best_step']} of {result['step']}" if "best_step" in result else ""
    unit, score = ("nats", f", {scored(result)}") if "score" in result else ("nats per token", "")
    return f"{text}, held-out loss {result['loss']:.4f} {unit}{excess}{score}{best}, {result['tokens']:,} tokens"


def scored(result: Mapping[str, Any]) -> str:
    """The score of a task with its interval, then the other values of its metric."""
    name, *others = result["metrics"]
    low, high = result["intervals"][name]
    text = f"{name} {result['score']:.4f} (95% interval {low:.4f} to {high:.4f})"
    text += "".join(f", {other} {result['metrics'][other]:.4f}" for other in others)
    return text + (f", {result['invalid']:.1%} invalid outputs" if result.get("invalid") else "")


def _compared(differences: Mapping[str, Any]) -> str:
    """How training again compares with the kept result, in a line."""
    if not differences:
        return "trained again, with the same result"
    key, (stands, again) = next(iter(differences.items()))
    more = f" and {len(differences) - 1} more keys differ" if len(differences) > 1 else ""
    return f"trained again, and {key} is {again!r} where the kept result has {stands!r}{more}"
