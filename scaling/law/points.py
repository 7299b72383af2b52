"""Points: a table of runs, what each of its columns means, and how many planned runs stand behind it.

A law is fitted to points of one kind. Two parameter counts that include and leave out the embedding, two tokenizers or
two validation sets make two tables, so a table that mixes them is refused rather than pooled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from scaling.errors import ScalingError, nearest

MEANINGS = MappingProxyType(
    {
        "N": "parameters",
        "D": "training tokens",
        "C": "training compute",
        "loss": "validation loss, nats a token",
        "U": "unique training tokens",
        "S": "optimizer steps",
        "B": "batch, tokens a step",
        "lr": "learning rate",
        "M": "training tokens a parameter",
        "width": "model width",
        "depth": "layers",
        "seed": "seed",
        "run": "name of the run",
        "S_min": "optimizer steps at a batch far above the critical one",
        "C_min": "training compute at a batch far below the critical one",
        "B_crit": "critical batch, tokens a step",
        "S1": "area under the learning rate",
        "S2": "annealing area",
        "error": "error of a task",
        "accuracy": "accuracy of a task",
    }
)
"""The columns a law may ask for, in the papers' letters."""

POSITIVE = frozenset(
    {"N", "D", "C", "loss", "U", "S", "B", "lr", "M", "width", "depth", "S_min", "C_min", "B_crit", "S1"}
)

DERIVED = MappingProxyType(
    {
        "6ND": lambda column: 6 * column("N") * column("D"),
        "D/N": lambda column: column("D") / column("N"),
        "C/6N": lambda column: column("C") / (6 * column("N")),
        "ND": lambda column: column("N") * column("D"),
        "BS": lambda column: column("B") * column("S"),
    }
)
"""Formulas a column may be computed by when the table lacks it; the formula then is its definition."""

IDENTITIES = ("tokenizer", "validation")
"""Columns that say which loss was measured: two values are two kinds of loss."""

DEFINITION = "_definition"
"""`N_definition` states what column N counts."""

NOT_STATED = "not stated"

USED_STATES = frozenset({"finished"})
EXCLUDED_STATES = frozenset({"diverged", "pruned", "excluded"})
FAILED_STATES = frozenset({"failed", "out_of_memory", "stopped", "missing"})


@dataclass(frozen=True)
class Points:
    """Columns of equal length, their stated definitions, and the runs that were planned but are not among them."""

    columns: Mapping[str, np.ndarray]
    definitions: Mapping[str, str] = field(default_factory=dict)
    excluded: int = 0
    failed: int = 0
    held_out: int = 0
    source: str = ""

    def __post_init__(self):
        lengths = {name: len(column) for name, column in self.columns.items()}
        if len(set(lengths.values())) > 1:
            raise ScalingError(
                "the columns differ in length", key="columns", value=lengths, mend="give every column a value a run"
            )

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def __contains__(self, name: str) -> bool:
        return name in self.columns

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.columns:
            raise ScalingError(
                f"there is no column {name!r}{self._meaning(name)}",
                file=self.source or None,
                mend=f"name yours by --map {name}=COLUMN ({nearest(name, self.columns)})",
            )
        return self.columns[name]

    @property
    def used(self) -> int:
        """Fitted or held out to test the fit."""
        return len(self) + self.held_out

    @property
    def planned(self) -> int:
        """Every planned run is used, excluded or failed; there is no fourth way."""
        return self.used + self.excluded + self.failed

    def definition(self, name: str) -> str:
        return self.definitions.get(name, NOT_STATED)

    def where(self, mask: np.ndarray) -> Points:
        """The points of a boolean mask; those left out are counted as excluded."""
        mask = np.asarray(mask)
        if mask.dtype != bool or mask.shape != (len(self),):
            raise ScalingError("needs one true or false a point", key="mask", value=mask.shape, mend="compare a column")
        kept = {name: column[mask] for name, column in self.columns.items()}
        return replace(self, columns=kept, excluded=self.excluded + int((~mask).sum()))

    def pooled(self) -> dict[str, int]:
        """Columns of words that differ between groups of points, and how many values each has: kinds no law knows."""
        kinds = {}
        for name, column in self.columns.items():
            values = len(set(column.tolist())) if column.dtype == object and name not in ("run", "status") else 1
            if 1 < values <= len(self) / 2:
                kinds[name] = values
        return kinds

    def hold_out(self, mask: np.ndarray) -> tuple[Points, Points]:
        """The points to fit and those of the mask, held out to test the fit; both count as used."""
        rest, held = self.where(~np.asarray(mask)), self.where(mask)
        return (
            replace(rest, excluded=self.excluded, held_out=self.held_out + len(held)),
            replace(held, excluded=self.excluded, held_out=self.held_out + len(rest)),
        )

    def take(self, order: np.ndarray) -> Points:
        """The points in another order, or drawn again as a bootstrap does; the counts stay those of the table."""
        return replace(self, columns={name: column[order] for name, column in self.columns.items()})

    def with_column(self, name: str, values: np.ndarray, definition: str) -> Points:
        columns = {**self.columns, name: np.asarray(values)}
        return replace(self, columns=columns, definitions={**self.definitions, name: definition})

    def numbers(self, name: str) -> np.ndarray:
        """A column a law can use: present, numeric, finite, and positive where its meaning is."""
        column = self[name]
        place = self.source or None
        if not np.issubdtype(column.dtype, np.number):
            word = next(str(value) for value in column if not _is_number(value))
            raise ScalingError("is not a number", file=place, key=name, value=word, mend="mend the cell or map another")
        column = column.astype(float)
        missing = int((~np.isfinite(column)).sum())
        if missing:
            raise ScalingError(
                f"{missing} of {len(column)} values are missing or not finite",
                file=place,
                key=name,
                mend="fill them, or say in a `status` column that those runs diverged or failed",
            )
        if name in POSITIVE and len(column) and column.min() <= 0:
            raise ScalingError(
                f"must be positive ({MEANINGS[name]})", file=place, key=name, value=float(column.min()), mend="mend it"
            )
        return column

    def require(self, inputs: Sequence[str], parameters: int) -> None:
        """Refuse what determines no law: an absent or one-valued column, fewer distinct scales than parameters."""
        for name in inputs:
            self.numbers(name)
        place = self.source or None
        if not len(self):
            raise ScalingError(
                f"there is no finished run to fit: {self.count()}",
                file=place,
                mend="finish some, or mend their `status`",
            )
        for name in inputs:
            if len(np.unique(self[name])) == 1:
                raise ScalingError(
                    "has one value, so no law in it can be seen",
                    file=place,
                    key=name,
                    value=float(self[name][0]),
                    mend=f"add runs at another {name}, or fit a law without it",
                )
        scales = len(np.unique(np.column_stack([self[name] for name in inputs]), axis=0))
        if scales < parameters:
            raise ScalingError(
                f"{scales} distinct scales ({', '.join(inputs)}) cannot determine {parameters} parameters",
                file=place,
                mend=f"add {parameters - scales} scales or more, or fit a law with fewer parameters",
            )

    def count(self) -> str:
        held = f" ({len(self)} fitted, {self.held_out} held out)" if self.held_out else ""
        return f"{self.used} used{held} + {self.excluded} excluded + {self.failed} failed = {self.planned} planned"

    def _meaning(self, name: str) -> str:
        return f" ({MEANINGS[name]})" if name in MEANINGS else ""


def from_columns(
    columns: Mapping[str, Iterable[Any]],
    *,
    rename: Mapping[str, str] | None = None,
    where: Mapping[str, str] | None = None,
    define: Mapping[str, str] | None = None,
    pool: Iterable[str] = (),
    source: str = "",
) -> Points:
    """Points of raw columns, checked.

    `rename` says which column holds what (`{"loss": "final_loss", "C": "6ND"}`), `where` chooses rows by value,
    `define` states definitions the table lacks, and `pool` names the identities or definitions that may differ.
    A `status` column counts the runs that did not finish: diverged and pruned ones are excluded, others failed.
    """
    raw = {name: _typed(name, list(values), source) for name, values in columns.items()}
    for name, value in (where or {}).items():
        raw = _chosen(raw, name, value, source)
    table = Points(_renamed(raw, rename or {}, source), source=source)
    table, excluded, failed = _finished(table)
    definitions = _definitions(table, set(pool)) | _formulas(rename or {}, raw) | dict(define or {})
    points = Points(
        {name: column for name, column in table.columns.items() if not name.endswith(DEFINITION)},
        MappingProxyType(definitions),
        excluded,
        failed,
        source=source,
    )
    _refuse_duplicates(points)
    return points


def from_rows(rows: Iterable[Mapping[str, Any]], **choices: Any) -> Points:
    """Points of records, one a run: a ledger's results, or lines of JSON."""
    records = list(rows)
    names = list(dict.fromkeys(name for record in records for name in record))
    return from_columns({name: [record.get(name) for record in records] for name in names}, **choices)


def from_frame(frame: Any, **choices: Any) -> Points:
    """Points of a data frame (pandas, or anything with `columns` and `frame[name]`)."""
    return from_columns({str(name): list(frame[name]) for name in frame.columns}, **choices)


def _typed(name: str, values: list[Any], source: str) -> np.ndarray:
    """Numbers where every filled cell is one, else words; an empty cell is a missing number or an empty word."""
    filled = [value for value in values if not _is_empty(value)]
    if all(_is_number(value) for value in filled) and (filled or name in POSITIVE):
        return np.array([np.nan if _is_empty(value) else float(value) for value in values])
    if name in POSITIVE:
        word = next(value for value in filled if not _is_number(value))
        raise ScalingError(
            f"is not a number ({MEANINGS[name]}), in row {values.index(word) + 1}",
            file=source or None,
            key=name,
            value=word,
            mend="mend the cell",
        )
    return np.array(["" if _is_empty(value) else str(value) for value in values], dtype=object)


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _is_number(value: Any) -> bool:
    if isinstance(value, bool | np.bool_):
        return False
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _chosen(raw: Mapping[str, np.ndarray], name: str, value: str, source: str) -> dict[str, np.ndarray]:
    if name not in raw:
        raise _unknown(name, raw, source)
    column = raw[name]
    if np.issubdtype(column.dtype, np.number):
        mask = column == float(value) if _is_number(value) else np.zeros(len(column), bool)
    else:
        mask = column == value
    if not mask.any():
        choices = {f"{kind:g}" if isinstance(kind, float) else str(kind) for kind in column}
        raise ScalingError(
            f"no row has {name}={value}", file=source or None, key="where", mend=nearest(str(value), choices)
        )
    return {other: values[mask] for other, values in raw.items()}


def _renamed(raw: Mapping[str, np.ndarray], rename: Mapping[str, str], source: str) -> dict[str, np.ndarray]:
    taken = {rename[name]: raw[rename[name]] for name in rename if rename[name] in raw}
    columns = {name: column for name, column in raw.items() if name not in taken}
    columns |= {name: taken[origin] for name, origin in rename.items() if origin in taken}
    for name, origin in rename.items():
        if origin in taken:
            continue
        if origin not in DERIVED:
            raise _unknown(origin, [*raw, *DERIVED], source)
        columns[name] = DERIVED[origin](Points(columns, source=source).numbers)
    return columns


def _unknown(name: str, choices: Iterable[str], source: str) -> ScalingError:
    return ScalingError(f"there is no column {name!r}", file=source or None, mend=nearest(name, choices))


def _formulas(rename: Mapping[str, str], raw: Mapping[str, np.ndarray]) -> dict[str, str]:
    return {name: origin for name, origin in rename.items() if origin in DERIVED and origin not in raw}


def _finished(table: Points) -> tuple[Points, int, int]:
    """The finished runs, and how many were excluded and how many failed."""
    if "status" not in table:
        return table, 0, 0
    states = [str(state) for state in table["status"]]
    known = USED_STATES | EXCLUDED_STATES | FAILED_STATES
    for row, state in enumerate(states):
        if state not in known:
            raise ScalingError(
                f"is no way a run ends, in row {row + 1}",
                file=table.source or None,
                key="status",
                value=state,
                mend=nearest(state, known),
            )
    used = np.array([state in USED_STATES for state in states], bool)
    excluded = sum(state in EXCLUDED_STATES for state in states)
    return table.where(used), excluded, len(states) - excluded - int(used.sum())


def _definitions(table: Points, pool: set[str]) -> dict[str, str]:
    """What the table itself states; two statements about one column are two kinds of points."""
    stated = {}
    for name in table.columns:
        subject = name.removesuffix(DEFINITION)
        if name not in IDENTITIES and subject == name:
            continue
        kinds = sorted({str(value) for value in table[name]})
        if len(kinds) > 1 and name not in pool:
            raise ScalingError(
                f"mixes {' and '.join(map(repr, kinds[:3]))}: their points are not of one law",
                file=table.source or None,
                key=name,
                mend=f"choose one by --where {name}=…, or pool them openly by --pool {name}",
            )
        if kinds and kinds != [""]:
            stated[subject] = " or ".join(kinds)
    return stated


def _refuse_duplicates(points: Points) -> None:
    """One run counted twice would narrow every interval; a run may have many rows only along its steps or tokens."""
    keys = [name for name in ("run", "S", "D") if name in points] if "run" in points else list(points.columns)
    rows = Counter(zip(*(points[name].tolist() for name in keys), strict=True)) if keys else Counter()
    twice = [row for row, times in rows.items() if times > 1]
    if twice:
        shown = ", ".join(f"{name}={value}" for name, value in list(zip(keys, twice[0], strict=True))[:4])
        raise ScalingError(
            f"{len(twice)} runs stand in the table more than once, the first {shown}",
            file=points.source or None,
            mend="keep one row a run, or give each its own `run` or `seed`",
        )
