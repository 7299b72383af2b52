"""Results that hold their JSON document."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from scaling.printing import columns, html_table

Table = tuple[list[str], list[list[Any]]]


@dataclass(frozen=True)
class Result:
    """A result that holds the `document` of `--json` (docs/json.md); its keys are attributes."""

    document: Any

    def __getattr__(self, key: str) -> Any:
        document = self.__dict__.get("document", {})  # which is not there yet while a copy is made
        if key not in document:
            raise AttributeError(f"{type(self).__name__} has no {key!r}")
        return document[key]

    def to_json(self) -> Any:
        from scaling.ledger.document import spelled

        return spelled(self.document)

    def saved(self, path: str | Path | None, *more: Any) -> Self:
        """This result, written by its `save` to a file where one is named."""
        if path is not None:
            self.save(path, *more)
        return self

    def _title(self) -> str:
        """The lines above the table."""
        return ""

    def _table(self) -> Table:
        """The titles and rows of the table: the keys of the document, where a result has no other."""
        return ["key", "value"], [[key, str(value)] for key, value in dict(self.document).items()]

    def __str__(self) -> str:
        return "\n".join(filter(None, (self._title(), columns(*self._table()))))

    def _repr_html_(self) -> str:
        return html_table(*self._table())
