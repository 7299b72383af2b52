"""What every command that takes configs takes: names, overrides, overlays, and an extension."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from scaling.config.layers import load
from scaling.config.resolved import Config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The words and flags that `configs` reads."""
    parser.add_argument("words", nargs="*", metavar="NAME|key=value", help="a model, a table or a file; overrides")
    parser.add_argument("--overlay", action="append", default=[], metavar="FILE", help="a file to lay over it; repeats")
    parser.add_argument("--extend", metavar="PATH", help="a .py file whose classes join the slots they name")


def configs(arguments: argparse.Namespace) -> dict[str, Config]:
    """A config for each name; overrides, overlays and the extension hold for all."""
    names, overrides = split(arguments.words)
    options = {"overlays": arguments.overlay, "extend": arguments.extend}
    return {name or "model": load(name, overrides, **options) for name in names or [None]}


def print_remarks(configs: Iterable[Config]) -> None:
    """Print what a row or the command line may have changed by half, each remark once, on standard error."""
    for remark in dict.fromkeys(remark for config in configs for remark in config.remarks):
        print(f"scaling: {remark}", file=sys.stderr, flush=True)


def split(words: Iterable[str]) -> tuple[list[str], list[str]]:
    """Names, and overrides."""
    names, overrides = [], []
    for word in words:
        (overrides if "=" in word else names).append(word)
    return names, overrides
