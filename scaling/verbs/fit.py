"""Fit a scaling law to a table of runs, or to whole training curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from scaling.base.errors import refuse
from scaling.base.numbers import NonNegativeFloat, OpenFraction, PositiveFloat, Range, Seed
from scaling.base.printing import TableResult
from scaling.verbs.verb import Flag, spelled, verb

if TYPE_CHECKING:
    from scaling.laws import Fit, Points
    from scaling.laws.curves import Curve, CurveFit
else:
    Fit = CurveFit = TableResult  # the signature is evaluated, and help needs no numpy

Objective = Literal["log_huber", "log_squared", "squared", "huber"]
Method = Literal["profile", "t", "bootstrap", "none"]
AUTO = "auto"
# Analyses of the optimal size, which fit no law of the loss: Chinchilla's approaches 2 and 1.
APPROACHES = ("isoflop_parabola", "isoflop_akima", "envelope")
# The kinds of law that can use an option; an option without a line here suits every kind.
_USERS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("fix", "tie", "bounds", "weight"), ("law",)),
    **dict.fromkeys(("hold_out", "targets", "objective", "delta", "intervals", "level"), ("law", AUTO)),
    **dict.fromkeys(("group", "starts"), ("law", AUTO)),
    "noise": ("isoflop",),
    "seed": ("law", AUTO, "isoflop"),
}


@verb
def fit(
    points: Annotated[Any, "the table of runs"],
    *,
    law: Annotated[
        str,
        "a name, two for two steps (docs/laws.md), a formula, a YAML file, or auto (the best for the largest runs)",
    ] = "chinchilla",
    rename: Annotated[Mapping[str, str], Flag("map")] = {},
    where: Annotated[tuple[str, ...], "fit only these rows: 'C<1e21' 'N>=1e8' corpus=c4"] = (),
    define: Annotated[
        Mapping[str, str], "the definition of a column, its unit (loss=perplexity), or the setup (tokenizer=GPT-2)"
    ] = {},
    fix: Annotated[Mapping[str, float], "fix parameters of the law at these values"] = {},
    tie: Annotated[Mapping[str, str], "make parameters of the law equal: alpha=beta"] = {},
    bounds: Annotated[
        Mapping[str, tuple[float, float]], "keep parameters of the law between these values: alpha=0:2"
    ] = {},
    weight: Annotated[str | None, "the column with the weight of each run"] = None,
    hold_out: Annotated[
        str | None, "test on these runs: 'N>=1e9', N (the largest N), largest (by each size), or none"
    ] = None,
    targets: Annotated[
        Sequence[Mapping[str, float]],
        Flag("target"),
        "predict here, or find the best N and D for C (C=1e21 served=1e12 includes these tokens); repeats",
    ] = (),
    objective: Annotated[
        Objective | None, "the objective that is minimised (default: log_huber for a loss, squared for a score)"
    ] = None,
    delta: Annotated[
        Annotated[float, Range(above=0, most=1e100)] | None,
        "the error from which Huber's penalty is linear (default 0.001)",
    ] = None,
    intervals: Annotated[Method, "the method of the intervals"] = "profile",
    level: OpenFraction = 0.95,
    group: Annotated[
        str | None, "the column whose equal values share an error (a trunk, a seed), or none (default: trunk, or run)"
    ] = None,
    noise: Annotated[PositiveFloat | None, "standard deviation of the loss between seeds, for IsoFLOP minima"] = None,
    starts: Annotated[int, Range(least=1, most=100_000), "number of random starts"] = 1024,
    seed: Annotated[Seed, "the seed of all random numbers"] = 0,
    figures: Annotated[str | Path | None, "write all figures to this folder, as PDF, SVG and PNG"] = None,
) -> Fit:
    """Fit a scaling law to a table of runs and test the fit.

        scaling fit points.csv --law chinchilla                             a table with columns N, D and loss
        scaling fit points.csv --map loss=final_loss N=params-embedding     other names of columns, or formulas
        scaling fit points.csv --where 'C<1e21' 'N>=100M' corpus=c4         some of its rows
        scaling fit points.csv --hold-out 'N>=1e9' --target N=7e9 D=1.4e11   test it, then predict with it
        scaling fit points.csv --law 'E + A*N^-a + B*D^-b' --bounds a=0:2   your own law, also in a YAML file
        scaling fit points.csv --law isoflop_akima                          optimal sizes from IsoFLOP minima
        scaling fit points.csv --law auto                                   the law that predicts the largest runs best
        scaling fit points.csv --law chinchilla,task_sigmoid                a task's score from N and D, by the loss
        scaling fit wandb:me/scaling                                        the runs of a W&B project

        fit = scaling.fit(df, law="chinchilla", hold_out="N>=1e9", targets=[{"N": 7e9, "D": 1.4e11}])

    POINTS is CSV, TSV, JSON lines, parquet, or the folder of a study, a sweep or a ledger; in Python also a DataFrame,
    records, or columns. A column `status` or W&B's `State` (finished, diverged, crashed, …) counts runs without
    a loss. Runs with a true `held_out` test the fit. `N_definition`, `tokenizer` and similar columns are definitions.
    `scaling explain law` lists the laws. `scaling fit-curves` fits whole training curves.
    """
    options = locals()

    from scaling.laws.examine import of_envelope, of_isoflop
    from scaling.laws.held_out import split_held_out
    from scaling.sweeps.points import read_points

    kind = law if law == AUTO else law.partition("_")[0] if law in APPROACHES else "law"
    _refuse_unused(kind, options)
    table = read_points(points, rename=rename, where=where, define=define)
    train, tested = split_held_out(table, hold_out)
    if kind == "isoflop":
        fitted = of_isoflop(train, law.removeprefix("isoflop_"), noise, seed)
    else:
        fitted = of_envelope(train) if kind == "envelope" else _law(table, train, tested, options)
    if figures is not None:
        files = [str(path) for path in fitted.save(figures)]
        fitted = replace(fitted, document={**fitted.document, "figures": files})
    return fitted


def _refuse_unused(kind: str, options: Mapping[str, Any]) -> None:
    """Refuse options that have no effect with this law or with another option, before the table is read."""
    reasons = {name: f"{options['law']} cannot use it" for name, kinds in _USERS.items() if kind not in kinds}
    if options["intervals"] == "none":
        reasons.setdefault("level", "no intervals are asked for")
    if kind == "isoflop" and options["noise"] is None:
        reasons["seed"] = "nothing is random without --noise"
    parameters = signature(fit, eval_str=True).parameters
    for option, reason in reasons.items():
        value, parameter = options[option], parameters[option]
        is_unused = value in (parameter.default, None, (), [])
        refuse(not is_unused, reason, "leave it out", key=spelled(parameter), value=value)


def _law(table: Points, train: Points, tested: Points | None, options: Mapping[str, Any]) -> Fit:
    """The fit of a law, or of the law that `auto` chooses, to the points of `train`."""
    from scaling.laws.examine import check_target, examine
    from scaling.laws.fit import fit as fit_one_step
    from scaling.laws.held_out import candidates, choose, passing
    from scaling.laws.points import group_of
    from scaling.laws.predict import fit_two_steps
    from scaling.laws.problem import named_objective
    from scaling.laws.written import law_of

    is_auto, seed, group = options["law"] == AUTO, options["seed"], group_of(train, options["group"])
    weights = None if options["weight"] is None else train.numbers(options["weight"])
    if is_auto:
        forms, fixed = candidates(train), {}
    else:
        constraints = options["fix"], options["tie"], options["bounds"]
        form, fixed = law_of(options["law"], table, *constraints, AUTO, *APPROACHES)
        forms = [form]
    for target in options["targets"]:
        forms = passing(forms, lambda form, target=target: check_target(form, target))
    objective = options["objective"]
    if objective or options["delta"]:
        objective = named_objective(objective or forms[0].objective, options["delta"])
    choice = choose(train, forms, objective=objective, seed=seed) if is_auto else None
    if choice is not None:
        fit_form = choice.fit
    else:
        fit_law = fit_two_steps if forms[0].steps else fit_one_step
        fit_form = partial(fit_law, forms[0], objective=objective, weights=weights, fixed=fixed)
    return examine(
        fit_form(train, starts=options["starts"], seed=seed, group=group),
        held_out=tested,
        targets=options["targets"],
        level=options["level"],
        method=None if options["intervals"] == "none" else options["intervals"],
        group=group,
        largest=options["hold_out"] == "largest",
        choice=choice,
    )


@verb
def fit_curves(
    curves: Annotated[Any, "the folder of a study, or a table of curves"],
    *,
    law: Annotated[Literal["multi_power", "annealed_curve"], "the law of whole curves"] = "multi_power",
    after: Annotated[NonNegativeFloat | None, "leave out the losses before this number of tokens"] = None,
    where: Annotated[tuple[str, ...], "fit only these rows of a table: 'N>=1e6' kind=evaluate"] = (),
    level: OpenFraction = 0.95,
    seed: Annotated[Seed, "the seed of the random starts"] = 0,
) -> CurveFit:
    """Fit a law to every logged loss of many runs, and predict held-out runs and the ends of unfinished ones.

        scaling fit-curves runs/studies/quickstart
        scaling fit-curves curves.csv --law annealed_curve --after 2e5

        curves = scaling.fit_curves("runs/studies/quickstart")
        curves.estimates["E"], curves.intervals()["E"]

    CURVES is the folder of a study, or a table with a row for each logged loss (columns run, N, step, tokens, lr and
    loss; docs/laws.md); in Python also a list of `Curve` objects. The fit predicts the runs with a true `held_out`
    and the end of each unfinished run.
    """
    from scaling.laws import curves as curve_fits

    return curve_fits.fit_curves(read_curves(curves, where), law, after=after, level=level, seed=seed)


def read_curves(source: Any, where: Sequence[str] = ()) -> list[Curve]:
    """The curves of a study's folder, of a table, or of `Curve` objects."""
    from scaling.laws import curves
    from scaling.sweeps.points import curves_of_study, read_points

    if isinstance(source, str | Path) and Path(source).is_dir():
        refuse(where, "chooses rows of a table", "name the folder of one study", key="where")
        return list(curves_of_study(Path(source)))
    if isinstance(source, list | tuple) and all(isinstance(curve, curves.Curve) for curve in source):
        return list(source)
    return curves.read_curves(read_points(source, where=where))
