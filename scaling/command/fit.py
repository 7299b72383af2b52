"""Fit a scaling law to a table of runs and say what the fit is worth.

scaling fit points.csv --law chinchilla                             a table with columns N, D and loss
scaling fit points.csv --map loss=final_loss N=params D=tokens      under other names
scaling fit points.csv --map C=6ND --law power_law_floor_c          compute by formula
scaling fit points.csv --hold-out 'N>=1e9' --target N=7e9 D=1.4e11  test it, then predict with it
scaling fit points.csv --law isoflop_akima                          optimal sizes from IsoFLOP minima

POINTS is CSV, JSON lines, parquet, or the folder of a study that holds points.csv. A column `status` (finished,
diverged, failed, …) counts the runs that have no loss; `N_definition`, `tokenizer` and the like state definitions.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.errors import ScalingError, nearest

if TYPE_CHECKING:
    from scaling.law.forms import Form
    from scaling.law.objective import Objective
    from scaling.law.picture import Picture
    from scaling.law.points import Points

    Album = Callable[[], dict[str, Picture]]

OBJECTIVES = ("log_huber", "log_squared", "squared", "huber", "log_absolute", "absolute")
METHODS = ("profile", "t", "bootstrap_case", "bootstrap_run", "bootstrap_residual", "none")
APPROACHES = {
    "isoflop_parabola": "Chinchilla's approach 2, minima by parabola",
    "isoflop_akima": "Chinchilla's approach 2, minima by Akima's interpolation",
    "envelope": "Chinchilla's approach 1, the envelope of training curves",
}
FORMATS = (".pdf", ".svg", ".png", ".html")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    pairs: dict[str, Any] = {"nargs": "+", "action": "extend", "default": [], "metavar": "NAME=VALUE"}
    add("points", metavar="POINTS", help="the table of runs")
    add("--law", default="chinchilla", help="its name, as docs/laws.md lists them (default %(default)s)")
    add("--map", **pairs, help="which column holds what, or its formula: loss=final_loss C=6ND")
    add("--where", **pairs, help="fit the rows of these values only")
    add("--define", **pairs, help="state what a column counts, or answer a question of the checklist")
    add("--pool", nargs="+", default=[], metavar="COLUMN", help="let this definition differ between points")
    add("--fix", **pairs, help="hold parameters of the law at these values")
    add("--hold-out", metavar="CONDITION", help="test on these runs: 'N>=1e9', or N for the largest N")
    add(
        "--target",
        nargs="+",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="predict here, or with C alone find the best N and D; may repeat",
    )
    add("--objective", default="log_huber", choices=OBJECTIVES, help="what is minimised (default %(default)s)")
    add("--delta", type=float, default=1e-3, help="where Huber's penalty turns linear (default %(default)s)")
    add("--intervals", default="profile", choices=METHODS, help="how intervals are made (default %(default)s)")
    add("--level", type=float, default=0.95, help="of the intervals (default %(default)s)")
    add("--cluster", metavar="COLUMN", help="runs whose errors belong together")
    add("--noise", type=float, metavar="NATS", help="standard deviation between seeds, for IsoFLOP minima")
    add("--starts", type=int, default=1024, help="random starts that are screened (default %(default)s)")
    add("--seed", type=int, default=0)
    add("--figures", metavar="FOLDER", help="draw PDF, SVG, PNG and interactive HTML there")
    add("--json", action="store_true", help="one JSON document")


def run(arguments: argparse.Namespace) -> None:
    from scaling.law.reading import read

    if arguments.starts < 1:
        raise ScalingError(
            "must be positive", key="starts", value=arguments.starts, mend="leave it out for the default"
        )
    approach = arguments.law in APPROACHES
    form = None if approach else _form(arguments.law)
    points = read(
        arguments.points,
        rename=_pairs(arguments.map, "map"),
        where=_pairs(arguments.where, "where"),
        define=_pairs(arguments.define, "define"),
        pool=arguments.pool,
    )
    document, album = _approach(arguments, points) if form is None else _law(arguments, form, points)
    if arguments.figures:
        document["figures"] = _draw(album(), Path(arguments.figures))
    if arguments.json:
        print(json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False))
        return
    from rich.console import Console

    from scaling.law.terminal import show

    console = Console(highlight=False, soft_wrap=True)
    show(document, console)
    if arguments.figures:
        console.print(f"figures: {arguments.figures}")


def _law(arguments: argparse.Namespace, form: Form, points: Points) -> tuple[dict[str, Any], Album]:
    from scaling.law.account import account, hold_out
    from scaling.law.fit import fit
    from scaling.law.picture.album import of_law

    held_out = None
    if arguments.hold_out:
        points, held_out = hold_out(points, arguments.hold_out)
    targets = [_numbers(words, "target") for words in arguments.target]
    found = fit(
        form,
        points,
        objective=_objective(arguments.objective, arguments.delta),
        clusters=arguments.cluster,
        fixed=_numbers(arguments.fix, "fix"),
        starts=arguments.starts,
        seed=arguments.seed,
    )
    document = account(
        found,
        method=None if arguments.intervals == "none" else arguments.intervals,
        level=arguments.level,
        held_out=held_out,
        targets=targets,
        stated=_pairs(arguments.define, "define"),
        seed=arguments.seed,
    )
    return document, lambda: of_law(found, held_out)


def _approach(arguments: argparse.Namespace, points: Points) -> tuple[dict[str, Any], Album]:
    from scaling.law.account import account_of_envelope, account_of_minima
    from scaling.law.envelope import envelope
    from scaling.law.isoflop import isoflop
    from scaling.law.picture.album import of_curves, of_valleys

    if arguments.law == "envelope":
        found = envelope(points)
        return account_of_envelope(points, found), lambda: of_curves(points, found)
    kind = arguments.law.removeprefix("isoflop_")
    size, data = (isoflop(points, along=name, kind=kind, noise=arguments.noise, seed=arguments.seed) for name in "ND")
    return account_of_minima(points, size, data), lambda: of_valleys(points, size, data)


def _form(name: str) -> Form:
    from scaling.law.forms import LAWS, named

    if name not in (laws := [law.name for law in LAWS]):
        raise ScalingError("is no law", key="law", value=name, mend=nearest(name, [*laws, *APPROACHES]))
    return named(name)


def _objective(name: str, delta: float) -> Objective:
    from scaling.law import objective

    if not delta > 0:
        raise ScalingError("must be positive", key="delta", value=delta, mend="the papers use 1e-3")
    made = {
        "log_huber": lambda: objective.LogHuber(delta),
        "huber": lambda: objective.Huber(delta),
        "log_squared": objective.LogSquared,
        "squared": objective.Squared,
        "log_absolute": objective.LogAbsolute,
        "absolute": objective.Absolute,
    }
    return made[name]()


def _pairs(words: Sequence[str], option: str) -> dict[str, str]:
    pairs = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign or not name or not value:
            raise ScalingError("is not NAME=VALUE", key=option, value=word, mend=f"write --{option} NAME=VALUE …")
        pairs[name] = value
    return pairs


def _numbers(words: Sequence[str], option: str) -> dict[str, float]:
    numbers = {}
    for name, value in _pairs(words, option).items():
        try:
            numbers[name] = float(value)
        except ValueError:
            raise ScalingError("is not a number", key=name, value=value, mend=f"write --{option} {name}=1e9") from None
    return numbers


def _draw(pictures: dict[str, Picture], folder: Path) -> list[str]:
    from scaling.law.picture import save

    files = {name: [folder / (name + suffix) for suffix in FORMATS] for name in pictures}
    return [str(path) for name, picture in pictures.items() for path in save(picture, *files[name])]
