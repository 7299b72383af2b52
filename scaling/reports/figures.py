"""Figures of the page: each with its number, its caption, and the files in which it can be printed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from xml.etree import ElementTree

import numpy as np

from scaling.figures import Picture, caption
from scaling.printing import short
from scaling.reports.markup import Html, formula, join, tag
from scaling.studies.findings import FIGURES, Findings

TEST, DOUBT = ("extrapolation",), ("residuals",)
"""Pictures of the held-out runs and of the diagnostics; every other picture is one of the law."""

SVG, LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"


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
    files = join(*(join(" ", tag("a", kind[1:].upper(), href=name + kind)) for kind in FIGURES))
    title = picture.title[:1].upper() + picture.title[1:]
    sentences = _sentences(findings, name, picture)
    legend = join(tag("b", f"Figure {number}. {title}."), " ", formula(sentences), files)
    drawn = tag("div", plot(picture, name, runs), class_="plot")
    return tag("figure", drawn, tag("figcaption", legend), class_="wide" if wide or len(picture.panels) > 1 else None)


def plot(picture: Picture, key: str, names: Mapping[str, str]) -> Html:
    """The picture as SVG in the page; each mark of a run shows its values and leads to its row in the table of runs.

    `key` is its own on the page, `names` are those of runs by their id. The page's policy forbids styles on elements,
    so that each becomes attributes.
    """
    root = ElementTree.fromstring(picture.svg(key))
    labels = _labels(picture, names)
    for element in list(root.iter()):
        for child in [*element.findall(f"{SVG}metadata"), *element.findall(f"{SVG}style")]:
            element.remove(child)
        for name, value in re.findall(r"([\w-]+):\s*([^;]+)", element.attrib.pop("style", "")):
            if name == "font":  # its size and its family, which is the page's
                name, value = "font-size", value.split("px")[0].split()[-1] + "px"
            if name != "font-family":
                element.set(name, value)
        element.tag = element.tag.removeprefix(SVG)
        if element.tag == "g":
            element.attrib.pop("id", None)
        if link := element.attrib.pop(LINK, None):
            element.set("href", link)
        if element.tag == "a":
            del element.attrib["target"]
            label = ElementTree.Element("title")
            label.text = next(labels)
            element.insert(0, label)
    root.attrib = {"viewBox": root.attrib["viewBox"], "role": "img"} | {
        "aria-label": f"{picture.title}; the table of runs has the values"
    }
    return Html(ElementTree.tostring(root, encoding="unicode"))


def _labels(picture: Picture, names: Mapping[str, str]) -> Iterator[str]:
    """The label of each mark at the pointer, in the order of the SVG: the run, and its place on both axes."""
    for marks, runs in picture.runs.items():
        assert marks.axes is not None
        x, y = (label.partition(" (")[0] for label in (marks.axes.get_xlabel(), marks.axes.get_ylabel()))
        for run, (across, up) in zip(runs, np.ma.filled(marks.get_offsets(), np.nan), strict=True):
            if np.isfinite([across, up]).all():  # others are not drawn
                yield f"{names.get(run, run)}: {x} {_value(across)}, {y} {_value(up)}"


def _value(value: float) -> str:
    return short(value) if abs(value) >= 1e3 else f"{value:.4f}".replace("-", "−")


def _sentences(findings: Findings, name: str, picture: Picture) -> str:
    """The caption without the definitions and the count, which the page states once for all figures."""
    assert findings.fit is not None
    assert findings.fit.law is not None
    law = findings.fit.law
    common = _of_tasks(findings).get(name) or caption(law.points, law.form.inputs)
    return picture.caption.removesuffix(common).strip()
