"""Markup: HTML whose text is escaped, numbers as people read them, and the frame of a page."""

from __future__ import annotations

import math
import re
from base64 import b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from html import escape, unescape
from itertools import repeat
from typing import Any

VOID = frozenset({"meta", "link", "br", "col", "input"})
DRAWN = frozenset({"circle", "line", "path", "rect"})
"""Elements of SVG that close themselves where they are empty."""


class Html(str):
    """Markup. Every other string is text, and is escaped when it is put into an element."""

    __slots__ = ()


Child = str | None


def tag(name: str, /, *children: Child, **attributes: str | float | int | None) -> Html:
    """An element. Attributes of None are left out; `class_` is class, and `data_run` is data-run."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID:
        return Html(f"<{name}{written}>")
    inner = join(*children)
    if not inner and name in DRAWN:
        return Html(f"<{name}{written}/>")
    return Html(f"<{name}{written}>{inner}</{name}>")


def join(*children: Child) -> Html:
    """Siblings, without an element around them."""
    return Html("".join(child if isinstance(child, Html) else escape(child) for child in children if child is not None))


def table(
    caption: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[Child]],
    words: Collection[int] = (0,),
    *,
    label: str | None = None,
    attributes: Iterable[Mapping[str, Any]] = repeat({}),
) -> Html:
    """A table that scrolls. Its first column names the rows; columns in `words` hold text; `attributes` are of rows."""
    kinds = ["words" if place in words else None for place in range(len(heads))]
    head = (tag("th", text, scope="col", class_=kind) for text, kind in zip(heads, kinds, strict=True))
    body = (
        tag(
            "tr",
            tag("th", first, scope="row"),
            *(tag("td", cell, class_=kind) for cell, kind in zip(cells, kinds[1:], strict=True)),
            **attributes_of_row,
        )
        for (first, *cells), attributes_of_row in zip(rows, attributes)
    )
    titled = tag("caption", tag("span", caption))
    whole = tag("table", titled, tag("thead", tag("tr", *head)), tag("tbody", *body))
    return tag("div", whole, class_="scroll", tabindex=0, role="region", aria_label=label or caption)


def plain(markup: Html) -> str:
    """The text of markup, for a terminal."""
    return unescape(re.sub("<[^>]*>", "", markup))


GREEK = {
    "alpha": "α",
    "beta": "β",
    "gamma": "γ",
    "delta": "δ",
    "epsilon": "ε",
    "eta": "η",
}
RAISED = re.compile(r"\^\(([^)]*)\)|\^([-−]?[^\s^)\],;.]+)")
SUPERSCRIPTS = re.compile(r"([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)")
OF_A_VARIANT = re.compile(r"(.+)\[(.+)\]")
LOWERED = re.compile(r"_([A-Za-z0-9*]+)")


def symbol(name: str) -> Html:
    """A parameter's name as the papers write it; one of a variant, `alpha[GEGLU]`, with the variant after it."""
    if own := OF_A_VARIANT.fullmatch(name):
        return join(symbol(own[1]), f" of {own[2]}")
    stem, _, index = name.partition("_")
    return join(GREEK.get(stem, stem), tag("sub", GREEK.get(index, index)) if index else None)


def formula(text: str) -> Html:
    """`N^-α` and `N_c` with their exponents raised and indices lowered."""
    parts, end = [], 0
    for raised in RAISED.finditer(text):
        parts += [
            _lowered(text[end : raised.start()]),
            tag("sup", _lowered((raised[1] or raised[2]).replace("-", "−"))),
        ]
        end = raised.end()
    return join(*parts, _lowered(text[end:]))


def _lowered(text: str) -> Html:
    pieces = LOWERED.split(text.replace(" - ", " − "))
    return join(*(tag("sub", piece) if place % 2 else piece for place, piece in enumerate(pieces)))


def significant(value: float, low: float | None, high: float | None) -> str:
    """A value with two digits of what its interval leaves open."""
    width = abs(high - low) if low is not None and high is not None else abs(value)
    return rounded(value, width / 10)


def signed_significant(value: float, low: float | None, high: float | None) -> str:
    text = significant(value, low, high)
    return text if text.startswith("−") else f"+{text}"


def ends(interval: Mapping[str, Any]) -> str:
    """`[2.180, 2.213]`; an end that the points do not close is called open."""
    low, high = interval["low"], interval["high"]
    texts = ["open" if end is None else significant(end, low, high) for end in (low, high)]
    return f"[{texts[0]}, {texts[1]}]"


def rounded(value: float, to: float) -> str:
    """To the decimal place of `to`; large and tiny numbers as powers of ten."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    digits = max(0, -math.floor(math.log10(to))) if to > 0 else 4
    if abs(value) >= 1e5 or digits > 6:
        return scientific(value)
    return f"{value:,.{digits}f}".replace("-", "−")


def scientific(value: float, digits: int = 2) -> str:
    """`1.3 × 10¹²` in one word of text."""
    mantissa, power = f"{value:.{digits - 1}e}".split("e")
    raised = str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{mantissa} × 10{raised}".replace("-", "−")


def raised(text: str) -> Html:
    """The same with its raised digits as markup: in large letters few faces have them all."""
    pieces = SUPERSCRIPTS.split(text)
    plain = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "−0123456789")
    return join(*(tag("sup", piece.translate(plain)) if place % 2 else piece for place, piece in enumerate(pieces)))


def percent(share: float) -> str:
    """A fraction in percent with two digits, however small; never `0.00%`."""
    if share == 0:
        return "0%"
    digits = max(0, 1 - math.floor(math.log10(abs(100 * share))))
    return f"{100 * share:.{min(digits, 4)}f}%".replace("-", "−")


def signed(share: float) -> str:
    text = percent(share)
    return text if text.startswith("−") else f"+{text}"


WIDTH, MIDDLE, ROOM = 200, 13, 8


def interval_strip(interval: Mapping[str, Any], truth: float | None) -> Html:
    """An open end runs out of the strip."""
    low, high, best = interval["low"], interval["high"], interval["estimate"]
    seen = [value for value in (low, high, best, truth) if value is not None]
    first, reach = min(seen), (max(seen) - min(seen)) or 1.0

    def at(value: float) -> float:
        return round(ROOM + (WIDTH - 2 * ROOM) * (value - first) / reach, 1)

    begin, end = (at(low) if low is not None else 0), (at(high) if high is not None else WIDTH)
    truth_line = None if truth is None else tag("line", class_="truth", x1=at(truth), x2=at(truth), y1=1, y2=25)
    label = f"{significant(best, low, high)} in {ends(interval)}" + (
        "" if truth is None else f"; the truth is {truth:.4f}"
    )
    return tag(
        "svg",
        tag("line", class_="range", x1=begin, x2=end, y1=MIDDLE, y2=MIDDLE),
        tag("circle", class_="best", cx=at(best), cy=MIDDLE, r=5),
        truth_line,
        class_="strip",
        viewBox=f"0 0 {WIDTH} 26",
        preserveAspectRatio="xMinYMid",
        role="img",
        aria_label=label,
    )


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
    whole = tag("html", head, tag("body", body, tag("script", Html(script)) if script else None), lang="en")
    return f"<!doctype html>\n{whole}\n"


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
