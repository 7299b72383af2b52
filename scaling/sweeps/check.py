"""Check: what would stop a run of the sweep is found before the first one, and its cost is printed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from scaling.base.errors import ScalingError, plural
from scaling.config.compose import Config, load, print_remarks
from scaling.sweeps.file import Cell, Sweep
from scaling.sweeps.search import cell, listed, tried
from scaling.training.ranks import rank_count

if TYPE_CHECKING:
    from scaling.training.experiment import Experiment

SAMPLE = 64  # cells from which the cost of a larger sweep is estimated


def described(sweep: Sweep, outlook: dict[str, Any]) -> str:
    """The parameters that the sweep varies, and its cost, in lines."""
    count, smallest, largest = outlook["runs"], outlook["smallest"], outlook["largest"]
    runs, each = ("runs without end", ", each") if count is None else (plural(count, "run"), "")
    about = "" if outlook["exact"] else "about "
    sizes = f"{smallest:,}" + ("" if smallest == largest else f" to {largest:,}")
    text = (
        f"{sweep.name}: {sweep.method}, {runs} over {', '.join(sweep.parameters)}\n{sizes} parameters without "
        f"embeddings; {about}{outlook['tokens']:.3g} tokens, {outlook['flops']:.3g} FLOPs{each}"
    )
    if sweep.hyperband is not None:
        brackets = ", ".join(map(str, sweep.hyperband.brackets[:4]))
        text += f"\nhyperband: after evaluation {brackets}, …, the best 1/{sweep.hyperband.eta:g} go on"
    return text


def resolved(words: Sequence[str], overlays: Sequence[str] = ()) -> Config:
    """The config that `scaling train WORDS` would train."""
    if any(word.startswith("study=") for word in words):
        from scaling.studies.scheduler import planned

        return planned(words)
    names = [word for word in words if "=" not in word]
    if len(names) > 1:
        raise ScalingError("a run has one name", key="command", value=" ".join(names))
    return load(names[0] if names else None, [word for word in words if "=" in word], overlays=overlays)


def experiment(words: Sequence[str], overlays: Sequence[str] = ()) -> Experiment:
    """The experiment that `scaling train WORDS` would train."""
    from scaling.training.experiment import assemble  # imports torch

    return assemble(resolved(words, overlays))


def check(sweep: Sweep, words: Sequence[str] = (), local: bool = False) -> tuple[dict[str, Any], Config]:
    """Refuse what would stop a run of the sweep, and estimate what the sweep will take, for one run where their number
    is not known (docs/json.md); with the config of one of its runs. `words` hold for every run; `local` is without a
    server.
    """
    values = [_tried(sweep, key, one, words) for key, one in tried(sweep)]
    first, runs = values[0].config, sweep.size
    if local and sweep.hyperband is not None and rank_count(first) > 1:
        # Hyperband is reported to by the process that trains, so a run is one process.
        raise sweep.config.error("early_terminate", "here it stops runs on one device each", "set trainer.devices=1")
    if sweep.method == "grid":  # all cells, or an even part of a large grid's
        sample = (cell(sweep, number) for number in range(0, runs or 1, -(-(runs or 1) // SAMPLE)))
    else:
        sample = itertools.islice(listed(sweep), SAMPLE)
    seen = [_tried(sweep, "", one, words) for one in sample]
    # Hyperband counts how often the metric is logged, and a short run may pay for fewer evaluations than it asks for.
    points = min(len(one.evaluated) for one in seen)
    if sweep.hyperband is not None and sweep.metric is not None and sweep.metric.name.startswith("evaluate/"):
        bracket = sweep.hyperband.brackets[0]
        if points <= bracket:
            what = f"the first bracket is the evaluation after {bracket}, and a run has {points}"
            fix = "raise evaluate.points, or set evaluate.windows, which short runs otherwise save on"
            raise sweep.config.error("early_terminate", what, fix)
    print_remarks(one.config for one in (*values, *seen))
    share = (1 if runs is None else runs) / len(seen)
    outlook = {
        "runs": runs,
        "tokens": share * sum(one.tokens(one.steps) for one in seen),
        "flops": share * sum(one.tokens(one.steps) * one.cost.flops_train_per_token for one in seen),
        "smallest": min(one.cost.parameters_non_embedding for one in seen),
        "largest": max(one.cost.parameters_non_embedding for one in seen),
        "exact": runs == len(seen),
    }
    return outlook, first


def _tried(sweep: Sweep, key: str, cell: Cell, words: Sequence[str]) -> Experiment:
    """The experiment of a cell; its mistake has the line of the sweep's file that it comes from: that of the parameter
    which the config's key is about, of the parameter `key`, or of the command.
    """
    try:
        return experiment([*sweep.overrides(cell), *words])
    except ScalingError as error:
        about = f"{error.key}." if error.key else ""
        named = next(
            (name for name in cell if about and (f"{name}.".startswith(about) or about.startswith(f"{name}."))), key
        )
        place = sweep.config.error(f"parameters.{named}" if named else "command", "")
        error.file, error.line = place.file, place.line
        raise
