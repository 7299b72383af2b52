"""A table's file as written: the names of its rows in their order, and its section `table`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from scaling.config.layers import entries, follow
from scaling.config.lookup import SUFFIXES, find
from scaling.config.node import Node, Origin
from scaling.config.resolved import Config
from scaling.errors import ScalingError


@dataclass(frozen=True)
class TableFile:
    """`name` is what `load` takes; `rows` are its rows, `config` the section `table`, bases included."""

    name: str
    rows: tuple[str, ...]
    config: Config

    def path(self, key: str) -> Path:
        """A file next to the one that names it."""
        return Path(self.config.origin[key].rpartition(":")[0]).parent / str(self.config[key])


def table_file(name: str) -> TableFile:
    """The table of a name among the shipped ones (`narang2021` or `table/narang2021`), or of a path."""
    path = find("table", name if name.endswith(SUFFIXES) else name.removeprefix("table/"))
    chain = follow("model", path)
    rows = tuple(entries(chain, "rows"))
    if not rows:
        raise ScalingError("it has no rows", file=path, key="rows", fix="write rows: {NAME: {what it changes}}")
    fields = Config.of(Node(entries(chain, "table"), Origin(str(path))))
    return TableFile(name if name.endswith(SUFFIXES) else f"table/{path.stem}", rows, fields)
