"""Layout: the version of a ledger's folder, written once into `ledger.json`, and the way from an older one to ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from scaling.errors import ScalingError
from scaling.ledger.document import Damaged, read, seal
from scaling.ledger.exclusive import Means, disk, probe, publish, replace
from scaling.ledger.forms import LAYOUT, misfit

VERSION = 1
NAME = "ledger.json"

# From each older version, the function that turns a folder of that version into the next one. It is called again after
# a crash, so it must do nothing to what it has turned already.
MIGRATIONS: dict[int, Callable[[Path], None]] = {}


@dataclass(frozen=True)
class Layout:
    """The version of the folder, and how files are made exclusively in it (found by trying, when it was made)."""

    version: int
    means: Means


def create(root: Path) -> Layout:
    """The layout of the ledger at `root`, which is made where there is none."""
    if not (root / NAME).exists():
        with disk("cannot make the ledger"):
            (root / "store").mkdir(parents=True, exist_ok=True)
            (root / "studies").mkdir(exist_ok=True)
        means = probe(root)
        publish(root / NAME, seal({"version": VERSION, "means": means}), means)
    return open_layout(root)


def open_layout(root: Path) -> Layout:
    """The layout of the ledger at `root`, brought to our version where it is older."""
    layout = _read(root)
    if layout.version > VERSION:
        raise ScalingError(
            f"this ledger has layout {layout.version}, and this version of scaling knows layout {VERSION}",
            fix="install a newer version of scaling",
            file=root,
        )
    for version in range(layout.version, VERSION):
        MIGRATIONS[version](root)
        replace(root / NAME, seal({"version": version + 1, "means": layout.means}))
    return _read(root)


def _read(root: Path) -> Layout:
    try:
        document = read(root / NAME, partial(misfit, form=LAYOUT))
    except Damaged:
        raise ScalingError("ledger.json is damaged", fix="delete it; it is written again", file=root / NAME) from None
    except OSError as error:
        raise ScalingError(f"cannot be read: {error.strerror}", file=root) from error
    if document is None:
        raise ScalingError("there is no ledger here", fix="it is made by the first run; or give its folder", file=root)
    return Layout(document["version"], document["means"])
