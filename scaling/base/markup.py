"""Markup: the blocks of a report, written as HTML and as Markdown, and the frame of a page."""

from __future__ import annotations

import math
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from html import unescape
from itertools import groupby
from typing import Any

from scaling.base.printing import GREEK, Html, Table, join, markdown_text, scientific, tag


@dataclass(frozen=True)
class Pairs:
    """Names with their values."""

    items: Mapping[str, str]


@dataclass(frozen=True)
class Items:
    """A list of sentences."""

    lines: Iterable[str]


@dataclass(frozen=True)
class Heading:
    text: str


@dataclass(frozen=True)
class Code:
    text: str


@dataclass(frozen=True)
class Figure:
    """The SVG of a picture, for HTML, and the image that Markdown shows."""

    svg: Html
    caption: Html
    image: str
    title: str
    wide: bool = False


Block = str | Table | Pairs | Items | Heading | Code | Figure
"""A string is a paragraph: `Html`, or text, which is escaped."""


def to_html(blocks: Iterable[Block]) -> Html:
    """The blocks as HTML, figures in a row beside one another. No text in them can act as markup."""
    groups = groupby(blocks, lambda block: isinstance(block, Figure))
    return join(*(tag("div", *map(_html, g), class_="gallery") if f else join(*map(_html, g)) for f, g in groups))


def _html(block: Block) -> Html:
    match block:
        case Table():
            notes = (tag("p", note, class_="quiet") for note in block.notes)
            box = tag("div", block.html(), class_="scroll", tabindex=0, role="region", aria_label=block.caption)
            return join(box, *notes)
        case Pairs(items):
            return tag(
                "dl", *(join(tag("dt", name), tag("dd", value)) for name, value in items.items()), class_="pairs"
            )
        case Items(lines):
            return tag("ul", *(tag("li", line) for line in lines), class_="plain warn")
        case Heading(text):
            return tag("h3", text)
        case Code(text):
            return tag("pre", tag("code", text))
        case Figure():
            plot = tag("div", block.svg, class_="plot")
            return tag("figure", plot, tag("figcaption", block.caption), class_="wide" if block.wide else None)
        case _:
            return tag("p", block)


def to_markdown(blocks: Iterable[Block]) -> str:
    """The blocks as GitHub's Markdown, in which HTML within a paragraph is kept."""
    return "\n\n".join(filter(None, map(_markdown, blocks))) + "\n"


def _markdown(block: Block) -> str:
    match block:
        case Table():
            return "\n\n".join([block.markdown(), *map(markdown_text, block.notes)])
        case Pairs(items):
            return _markdown(Items([f"{name}: {value}" for name, value in items.items()]))
        case Items(lines):
            return "\n".join(f"- {line if isinstance(line, Html) else markdown_text(line)}" for line in lines)
        case Heading(text):
            return f"### {markdown_text(text)}"
        case Code(text):
            return f"    {text}"
        case Figure():
            return f"![{markdown_text(block.title)}]({block.image})"
        case _:
            return block if isinstance(block, Html) else markdown_text(block)


def plain(markup: Html) -> str:
    """The text of markup, for a terminal."""
    return unescape(re.sub("<[^>]*>", "", markup))


RAISED = re.compile(r"\^\(([^)]*)\)|\^([-−]?[^\s^)\],;.]+)")
OF_A_VARIANT = re.compile(r"(.+)\[(.+)\]")
LOWERED = re.compile(r"_([A-Za-z0-9*]+)")


def symbol(name: str) -> Html:
    """A parameter's name as the papers write it; one of a variant, `alpha[GEGLU]`, with the variant after it."""
    if variant := OF_A_VARIANT.fullmatch(name):
        return join(symbol(variant[1]), f" of {variant[2]}")
    stem, _, index = name.partition("_")
    return join(GREEK.get(stem, stem), tag("sub", GREEK.get(index, index)) if index else None)


def formula(text: str) -> Html:
    """`N^-α` and `N_c` with their exponents raised and indices lowered."""
    parts, end = [], 0
    for raised in RAISED.finditer(text):
        exponent = (raised[1] or raised[2]).replace("-", "−")
        parts += [_lowered(text[end : raised.start()]), tag("sup", _lowered(exponent))]
        end = raised.end()
    return join(*parts, _lowered(text[end:]))


def _lowered(text: str) -> Html:
    pieces = LOWERED.split(text.replace(" - ", " − "))
    return join(*(tag("sub", piece) if place % 2 else piece for place, piece in enumerate(pieces)))


def significant(value: float, low: float | None, high: float | None) -> str:
    """A value with two digits of what its interval leaves open; large and tiny numbers as powers of ten."""
    to = (abs(high - low) if low is not None and high is not None else abs(value)) / 10
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    digits = max(0, -math.floor(math.log10(to))) if to > 0 else 4
    if abs(value) >= 1e5 or (digits > 6 and abs(value) < 1e-4):
        return scientific(value)
    return f"{value:,.{min(digits, 9)}f}".replace("-", "−")


def ends(interval: Mapping[str, Any]) -> str:
    """`[2.180, 2.213]`; an end that the points do not close is called open."""
    low, high = interval["low"], interval["high"]
    return f"[{', '.join('open' if end is None else significant(end, low, high) for end in (low, high))}]"


def percent(share: float) -> str:
    """A fraction in percent with two digits, however small; never `0.00%`."""
    digits = max(0, 1 - math.floor(math.log10(abs(100 * share)))) if share else 0
    return f"{scientific(100 * share)}%" if digits > 4 else f"{100 * share:.{digits}f}%".replace("-", "−")


def signed(share: float) -> str:
    return f"{'' if share < 0 else '+'}{percent(share)}"


def shell(title: str, body: Html, style: str, script: str = "") -> str:
    """Nothing may load, and of what could act only this very style sheet and this very script may."""
    scripts = f"'{_hash(script)}'" if script else "'none'"
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src {scripts}; base-uri 'none'; form-action 'none'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        tag("style", Html(style)),
    )
    page = tag("html", head, tag("body", body, tag("script", Html(script)) if script else None), lang="en")
    return f"<!doctype html>\n{page}\n"


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
