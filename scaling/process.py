"""Whether this process is the command line's alone, or a person's program that imports the package."""

from __future__ import annotations

from scaling.deferred import defer_compiler

_own = False


def take() -> None:
    """State that no other program's code runs in this process: what only that would need is not loaded."""
    global _own
    _own = True
    defer_compiler()


def is_own() -> bool:
    return _own
