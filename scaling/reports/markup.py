"""Markup that cannot be broken into: text is escaped unless this module has made it."""

from __future__ import annotations

import re
from html import escape, unescape

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


def plain(markup: Html) -> str:
    """The text of markup, for a terminal."""
    return unescape(re.sub("<[^>]*>", "", markup))
