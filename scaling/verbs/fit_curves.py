"""Fit a law to whole training curves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from scaling.errors import ScalingError
from scaling.schema import OpenFraction, Seed
from scaling.verbs.verb import verb

if TYPE_CHECKING:
    from scaling.laws.curve_fit import CurveFit
    from scaling.laws.curves import Curve
else:
    CurveFit = Any  # the signature is evaluated, and help needs no numpy


@verb
def fit_curves(
    curves: Any,
    *,
    law: Literal["multi_power", "annealed_curve"] = "multi_power",
    after: str | float | None = None,
    where: tuple[str, ...] = (),
    level: OpenFraction = 0.95,
    seed: Seed = 0,
) -> CurveFit:
    """Fit a law to every logged loss of many runs, and predict held-out runs and the ends of unfinished ones.

        scaling fit-curves runs/studies/quickstart
        scaling fit-curves curves.csv --law annealed_curve --after 2e5

        curves = scaling.fit_curves("runs/studies/quickstart")
        curves.estimates["E"], curves.intervals()["E"]

    CURVES is the folder of a study, or a table with a row for each logged loss (columns run, N, step, tokens, lr and
    loss; docs/laws.md); in Python also a list of `Curve` objects. The fit predicts the runs of a column `held_out` and
    the end of each run that is unfinished.

    Args:
        curves: the folder of a study, or a table of curves
        law: the law of whole curves
        after: leave out the losses before these tokens
        where: fit these rows of a table only: 'N>=1e6' kind=evaluate
        level: of the intervals
        seed: of the random starts
    """
    from scaling.laws import curve_fit
    from scaling.laws.formula import parse_number

    start = None if after is None else parse_number(after)
    if after is not None and start is None:
        raise ScalingError("is not a number", key="after", value=after, fix="write --after 2e5")
    return curve_fit.fit_curves(read(curves, where), law, after=start, level=level, seed=seed)


def read(source: Any, where: Sequence[str] = ()) -> list[Curve]:
    """The curves of a study's folder, of a table, or of `Curve` objects."""
    from scaling.laws.curves import Curve, read_curves
    from scaling.studies.points import read_points

    if isinstance(source, str | Path) and Path(source).is_dir():
        from scaling.studies.curves import curves_of_study

        if where:
            raise ScalingError("chooses rows of a table", key="where", fix="name the folder of one study")
        return list(curves_of_study(Path(source)))
    if isinstance(source, list | tuple) and all(isinstance(curve, Curve) for curve in source):
        return list(source)
    return read_curves(read_points(source, where=where))
