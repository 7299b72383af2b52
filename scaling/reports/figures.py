"""Figures of the page: each with its caption, and the files in which it can be printed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote
from xml.etree import ElementTree

import numpy as np

from scaling.base.markup import Figure, formula
from scaling.base.printing import Html, join, short, tag
from scaling.laws.figures import Picture
from scaling.studies.findings import PRINT, Findings, picture_of

TEST, DOUBT = ("extrapolation",), ("residuals",)
"""Pictures of the held-out runs and of the diagnostics; every other picture is one of the law."""

SVG, LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"


def of_law(findings: Findings) -> list[str]:
    """The names of the law's pictures."""
    others = {*TEST, *DOUBT, *(picture_of(task["task"]) for task in findings.tasks)}
    return [name for name in findings.pictures if name not in others]


def figures(findings: Findings, names: Iterable[str]) -> list[Figure]:
    """The pictures of these names, as far as they were drawn. The first of the law's, and those of several panels, are
    as wide as the page.
    """
    wide = of_law(findings)[:1]
    shown = []
    for name in names:
        if (picture := findings.pictures.get(name)) is not None:
            pdf = f"{PRINT}#page={[*findings.pictures].index(name) + 1}"
            files = join(" ", tag("a", "PDF", href=pdf), " ", tag("a", "PNG", href=f"{quote(name)}.png"))
            # The caption without the definitions and the count, which the page states once.
            title = tag("b", f"{picture.title[:1].upper()}{picture.title[1:]}.")
            caption, figure = join(title, " ", formula(picture.sentences), files), plot(picture, name, findings.names)
            is_wide = name in wide or len(picture.panels) > 1
            shown.append(Figure(figure, caption, f"{name}.png", picture.title, is_wide))
    return shown


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
        for run, place in zip(runs, np.ma.filled(marks.get_offsets(), np.nan), strict=True):
            if np.isfinite(place).all():  # others are not drawn
                across, up = (short(v) if abs(v) >= 1e3 else f"{v:.4f}".replace("-", "−") for v in place)
                yield f"{names.get(run, run)}: {x} {across}, {y} {up}"
