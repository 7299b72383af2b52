"""Pictures of what was measured before any law of loss: IsoFLOP valleys, and learning curves with their envelope."""

from __future__ import annotations

import numpy as np

from scaling.law.envelope import Envelope
from scaling.law.isoflop import IsoFlop, Minimum
from scaling.law.points import Points
from scaling.picture.elements import Axis, Band, Line, Marks, Panel
from scaling.picture.labels import caption, label, levels, short
from scaling.picture.palette import BLACK, GREY, KINDS, ordered
from scaling.picture.picture import Picture


def isoflop_valleys(isoflop: IsoFlop, points: Points) -> Picture:
    """The loss along size at each budget with its minimum, and the power law through the minima."""
    colours = ordered(np.array([minimum.C for minimum in isoflop.minima]))
    named = {_nearest(isoflop, budget).C for budget in levels(np.array([m.C for m in isoflop.minima]), 6)}
    valleys: list[Line | Marks] = []
    for minimum, colour in zip(isoflop.minima, colours, strict=True):
        name = short(minimum.C) if minimum.C in named else ""
        valleys += [
            Line(minimum.sizes, minimum.losses, colour, wide=0.8),
            Marks(minimum.sizes, minimum.losses, colour, name),
        ]
    best = isoflop.accepted
    budgets = np.array([minimum.C for minimum in best])
    positions = np.array([minimum.position for minimum in best])
    bottoms = np.array([minimum.loss for minimum in best])
    valleys.append(Marks(positions, bottoms, KINDS[1], "minimum", "star"))

    x = np.geomspace(budgets.min() / 2, budgets.max() * 2, 50)
    spread = np.array([minimum.spread for minimum in best])
    seen = np.isfinite(spread).all()
    growth: list[Band | Line | Marks] = [
        Line(x, np.asarray(isoflop.law(x)), BLACK, f"{isoflop.along}* ∝ C^{isoflop.law.exponent:.3f}"),
        Marks(
            budgets,
            positions,
            KINDS[1],
            "minimum",
            "star",
            low=positions * np.exp(-2 * spread) if seen else None,
            high=positions * np.exp(2 * spread) if seen else None,
        ),
    ]
    low, high = isoflop.interval()
    sentences = [f"Minima by {isoflop.kind}; exponent {isoflop.law.exponent:.3f}, 95% {low:.3f} to {high:.3f}."]
    if seen:
        sentences.append("Bars: two standard deviations of the minimum under seed noise.")
    if isoflop.refused:
        sentences.append(
            f"{len(isoflop.refused)} of {len(isoflop.minima)} budgets have no minimum: {_reasons(isoflop)}."
        )
    return Picture(
        (
            Panel(Axis(label(isoflop.along), True), Axis(label("loss"), True), tuple(valleys), legend="C (FLOPs)"),
            Panel(Axis(label("C"), True), Axis(f"optimal {label(isoflop.along)}", True), tuple(growth)),
        ),
        caption(points, ("N", "D", "C"), *sentences),
        "IsoFLOP curves",
    )


def _nearest(isoflop: IsoFlop, budget: float) -> Minimum:
    return min(isoflop.minima, key=lambda minimum: abs(np.log(minimum.C / budget)))


def _reasons(isoflop: IsoFlop) -> str:
    return "; ".join(sorted({str(minimum.refused) for minimum in isoflop.refused}))


def learning_curves(points: Points, *, axis: str = "D", envelope: Envelope | None = None) -> Picture:
    """The loss of each run along its training, darker for smaller models, over the envelope where it is given."""
    runs = sorted(set(points["run"].tolist()), key=lambda run: points["N"][points["run"] == run][0])
    sizes = np.array([points["N"][points["run"] == run][0] for run in runs])
    colours = dict(zip(sizes, ordered(sizes)))
    named = {float(sizes[np.abs(np.log(sizes / size)).argmin()]) for size in levels(sizes, 6)}
    parts: list[Line] = []
    for run, size in zip(runs, sizes):
        rows = np.flatnonzero(points["run"] == run)
        rows = rows[np.argsort(points[axis][rows])]
        name = f"N = {short(size)}" if size in named else ""
        named.discard(size)
        parts.append(Line(points[axis][rows], points["loss"][rows], colours[size], name, wide=1.0))
    if envelope is not None:
        x = {"C": envelope.C, "D": envelope.D}[axis]
        parts.append(Line(x, envelope.loss, GREY if axis == "D" else KINDS[1], "envelope", "dashed", 2.0))
    panel = Panel(Axis(label(axis), True), Axis(label("loss"), True), tuple(parts))
    return Picture((panel,), caption(points, ("N", axis)), "learning curves")
