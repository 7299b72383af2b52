"""The page of a look: every head of every layer, one of them large, and lines from token to token."""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import asdict
from importlib.resources import files
from typing import Any

from scaling.inside.look import Look, levels
from scaling.reports.markup import Html, join, tag
from scaling.reports.shell import shell

KEYS = "← → another head, ↑ ↓ another layer"


def page(seen: Look, title: str, head: str | None = None) -> str:
    """One HTML file; `head` is the one that is large when it opens."""
    layer, number = seen.at(head) if head else (0, 0)
    header = tag(
        "header",
        tag("h1", title),
        tag("p", f"What each head weighs. {KEYS}; point at a token to follow it.", class_="quiet"),
    )
    main = tag(
        "main",
        tag("section", tag("h2", "Heads by layer"), tag("div", id="overview"), aria_label="Heads by layer"),
        tag(
            "section",
            tag("h2", id="which"),
            tag("p", id="scores", class_="quiet"),
            tag("div", tag("canvas", id="map", tabindex=0), tag("div", id="lines"), class_="pair"),
            aria_live="polite",
        ),
    )
    data = tag("script", Html(_safe(document(seen, layer, number))), type="application/json", id="data")
    body = join(header, main, data, tag("div", id="tip", role="status"))
    return shell(title, body, _resource("page.css"), _resource("page.js"))


def document(seen: Look, layer: int, head: int) -> dict[str, Any]:
    scores = iter(seen.heads)
    return {
        "at": [layer, head],
        "maps": [
            {
                "name": name,
                "kind": each.kind,
                "shape": list(each.weights.shape),
                "rows": seen.rows(each),
                "columns": seen.columns(each),
                "levels": b64encode(levels(each).tobytes()).decode(),
                "scores": [
                    {
                        key: value
                        for key, value in asdict(next(scores)).items()
                        if key not in ("tower", "layer", "slot", "head")
                    }
                    for _ in range(each.heads)
                ],
            }
            for name, each in zip(seen.names, seen.maps)
        ],
    }


def _safe(value: Any) -> str:
    """JSON that cannot end the element that it stands in."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _resource(name: str) -> str:
    return (files("scaling.inside") / name).read_text(encoding="utf-8")
