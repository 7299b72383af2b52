"""The result of a verb: a JSON document, and the texts and tables that are printed."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from scaling.printing import columns, html_table

Table = tuple[Sequence[str], Sequence[Sequence[Any]]]


@dataclass(frozen=True, repr=False)
class Result:
    """A result with the `document` of `--json` (docs/json.md), whose keys are attributes. `parts` are the texts and
    tables that are printed, `code` is the exit code.
    """

    document: Any
    parts: Sequence[str | Table] = field(default=(), repr=False)
    code: int = field(default=0, repr=False)

    def __getattr__(self, key: str) -> Any:
        document = self.__dict__.get("document", {})  # which is not there yet while a copy is made
        if not isinstance(document, dict) or key not in document:
            raise AttributeError(f"{type(self).__name__} has no {key!r}")
        return document[key]

    def to_json(self) -> Any:
        from scaling.ledger.document import spelled

        return spelled(self.document)

    def _table(self) -> Table:
        """The keys of the document, where a result names no other parts."""
        return ["key", "value"], [[key, str(value)] for key, value in dict(self.document).items()]

    def __str__(self) -> str:
        parts = self.parts or [self._table()]
        return "\n".join(part if isinstance(part, str) else columns(*part) for part in parts)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        parts = self.parts or [self._table()]
        return "".join(
            f"<pre>{html.escape(part)}</pre>" if isinstance(part, str) else html_table(*part) for part in parts
        )
