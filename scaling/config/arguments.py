"""The remarks of a config, for standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from scaling.config.resolved import Config


def print_remarks(configs: Iterable[Config]) -> None:
    """Print what a row or the command line may have changed by half, each remark once, on standard error."""
    for remark in dict.fromkeys(remark for config in configs for remark in config.remarks):
        print(f"scaling: {remark}", file=sys.stderr, flush=True)
