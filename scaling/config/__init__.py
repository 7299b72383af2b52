"""Configs: strict YAML, laid over one another, with the file and line of every value.

`load` resolves a run's config; `document` reads any other YAML (a study, a sweep, a table) with the same strictness.
"""

from pathlib import Path

from scaling.config.arguments import print_remarks
from scaling.config.layers import SECTIONS, load, setting
from scaling.config.lookup import find, find_size, names, shipped
from scaling.config.reader import read
from scaling.config.resolved import Config
from scaling.config.table import TableFile, table_file

__all__ = [
    "SECTIONS",
    "Config",
    "TableFile",
    "document",
    "find",
    "find_size",
    "load",
    "names",
    "print_remarks",
    "read",
    "setting",
    "shipped",
    "table_file",
]


def document(path: str | Path) -> Config:
    """A YAML file as written: plain values and their lines, nothing followed, laid over or checked."""
    return Config.of(read(path))
