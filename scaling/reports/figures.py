"""Figures of the page: each with its number, its caption, and the files in which it can be printed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from scaling.figures import caption
from scaling.picture import Picture
from scaling.reports.markup import Html, join, tag
from scaling.reports.numbers import formula
from scaling.reports.plot import plot
from scaling.studies.findings import FIGURES, Findings

TEST, DOUBT = ("extrapolation",), ("residuals", "sensitivity")
"""Pictures of the held-out runs and of the diagnostics; every other picture is one of the law."""

WIDE = (720, 400)


def of_law(findings: Findings) -> tuple[str, ...]:
    return tuple(name for name in findings.pictures if name not in (*TEST, *DOUBT, *_of_tasks(findings)))


def _of_tasks(findings: Findings) -> dict[str | None, str]:
    """The captions of the scores' figures, by picture."""
    return {task.picture: task.caption for task in findings.tasks}


def gallery(findings: Findings, names: tuple[str, ...], runs: Mapping[str, str], wide: bool = False) -> Html | None:
    """The pictures of these names, as far as they were drawn; those of one panel two abreast unless `wide`."""
    shown = [name for name in names if name in findings.pictures]
    if not shown:
        return None
    order = [*of_law(findings), *TEST, *filter(None, _of_tasks(findings)), *DOUBT]
    figures = (_figure(findings, name, order.index(name) + 1, runs, wide) for name in shown)
    return tag("div", *figures, class_="gallery")


def _figure(findings: Findings, name: str, number: int, runs: Mapping[str, str], wide: bool) -> Html:
    picture = findings.pictures[name]
    panels = list(_panels(picture, name, runs, wide))
    files = join(*(join(" ", tag("a", kind[1:].upper(), href=name + kind)) for kind in FIGURES))
    title = picture.title[:1].upper() + picture.title[1:]
    sentences = _sentences(findings, name, picture)
    legend = join(tag("b", f"Figure {number}. {title}."), " ", formula(sentences), files)
    spread = wide or len(panels) > 1
    kind = "panels one" if len(panels) == 1 else "panels"
    return tag("figure", tag("div", *panels, class_=kind), tag("figcaption", legend), class_="wide" if spread else None)


def _panels(picture: Picture, name: str, runs: Mapping[str, str], wide: bool) -> Iterator[Html]:
    for place, panel in enumerate(picture.panels):
        label = f"{picture.title}: {panel.y.label} over {panel.x.label}" + (f", {panel.title}" if panel.title else "")
        size = WIDE if wide and len(picture.panels) == 1 else ()
        yield plot(panel, f"{name}-{place}", f"{label}; the table of runs has the values", runs, *size)


def _sentences(findings: Findings, name: str, picture: Picture) -> str:
    """The caption without the definitions and the count, which the page states once for all figures."""
    assert findings.law is not None
    common = _of_tasks(findings).get(name) or caption(findings.law.points, findings.law.form.inputs)
    return picture.caption.removesuffix(common).strip()
