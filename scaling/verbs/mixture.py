"""Find the proportions of domains of data with the lowest loss."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from scaling.base.errors import plural, refuse
from scaling.base.numbers import OpenFraction
from scaling.base.printing import interval, percent, tabulate
from scaling.verbs.compare import runs_of
from scaling.verbs.verb import RUNS, Flag, Result, verb


@verb
def mixture(
    points: Annotated[Any, "a study, a folder or a table of points, as for `scaling fit`"],
    *,
    law: Annotated[
        Literal["exponential", "joint"], "mixture_exponential_m, or mixture_joint_m (with the size of the model)"
    ] = "exponential",
    weights: Annotated[
        Mapping[str, float], "weights of the losses in the mean that is minimised (default 1): loss_domain_1=3"
    ] = {},
    at: Annotated[Mapping[str, float], "the size of the model, with the law joint: N=1e9"] = {},
    rename: Annotated[Mapping[str, str], Flag("map")] = {},
    level: OpenFraction = 0.95,
    runs: str | Path = RUNS,
) -> Result:
    """Find the best mixture of data: the proportions with the lowest mean loss, with intervals.

        scaling mixture swarm                               a study of the ledger
        scaling mixture points.csv --weights loss_domain_1=3
        scaling mixture points.csv --law joint --at N=1e9   the best mixture for a larger model

    For each domain, a law of its loss is fitted to the proportions `p_1`, `p_2`, … of the runs. Without losses of
    domains the law predicts `loss`.
    """
    from scaling.laws.fit import fit
    from scaling.laws.optimum import best_mixture

    table = runs_of(points, rename, Path(runs))
    shares = [name for name in table.columns if re.fullmatch(r"p_\d+", name)]
    few, fix = len(shares) < 2, "name them: --map p_1=COLUMN"
    refuse(few, "has no proportions p_1, p_2, …", fix, file=str(points))
    domains = [f"loss_domain_{place}" for place in range(1, len(shares) + 1)]
    losses = domains if any(name in table for name in domains) else ["loss"]
    for name, value in weights.items():
        is_weight, fix = name in losses and value >= 0, f"weigh {', '.join(losses)} by numbers from 0"
        refuse(not is_weight, "is not a weight of a loss", fix, key=f"weights {name}", value=value)
    weight = [weights.get(name, 1.0) for name in losses]
    refuse(not any(weight), "are all zero", "leave one out", key="weights")
    what, fix, sizes = "has no size", "take --law joint, or leave --at out", set[str]()
    if law == "joint":
        what, fix, sizes = "needs the size of the model", "write --at N=1e9", {"N"}
    is_place = set(at) == sizes and all(value > 0 for value in at.values())
    refuse(not is_place, f"the law {law} {what}", fix, key="at", value=dict(at))
    fits = [fit(f"mixture_{law}_{len(shares)}", table.with_column("loss", table[name], "")) for name in losses]
    found = best_mixture(fits, weight, at=at, level=level)
    tried = {name: [float(table.numbers(name).min()), float(table.numbers(name).max())] for name in shares}
    document = {
        "runs": len(table),
        "law": fits[0].form.name,
        "proportions": {name: found[name].to_json() for name in shares},
        "tried": tried,
        "loss": found["loss"].to_json(),
        "gain": found["gain"].to_json(),
        "errors": {name: float((each.residuals**2).mean() ** 0.5) for name, each in zip(losses, fits)},
    }
    bests, error = document["proportions"].items(), max(document["errors"].values())
    rows = [
        [name, f"{best['estimate']:.3f} {interval(best, '.3f')}", "{:.3f} to {:.3f}".format(*tried[name])]
        for name, best in bests
    ]
    beyond = [name for name, best in bests if not tried[name][0] <= best["estimate"] <= tried[name][1]]
    lines = [
        f"{plural(len(table), 'run')}, {document['law']}; residuals up to {error:.2%} of a loss",
        tabulate(["", f"best proportion, {percent(level)}", "tried"], rows),
        f"mean loss of the best mixture: {found['loss'].estimate:.4f} {interval(document['loss'])}",
        f"mean loss of the even mixture: {found['gain'].estimate:.4f} {interval(document['gain'])} higher",
    ]
    if beyond:
        lines.append(f"the best {', '.join(beyond)} lies outside the runs: train one there before you trust it")
    return Result(document, lines)
