"""The shell of a page: one HTML file that opens from a disk without a network, and runs no script but its own."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256

from scaling.reports.markup import Html, tag


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
