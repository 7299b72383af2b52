"""Columns made points: typed, renamed or computed, chosen by value, and refused where they mix two kinds of loss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from scaling.errors import ScalingError, nearest
from scaling.law.points import MEANINGS, POSITIVE, Points, is_number

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

USED_STATES = frozenset({"finished"})
EXCLUDED_STATES = frozenset({"diverged", "pruned", "excluded"})
FAILED_STATES = frozenset({"failed", "out_of_memory", "stopped", "missing"})


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
    if all(is_number(value) for value in filled) and (filled or name in POSITIVE):
        return np.array([np.nan if _is_empty(value) else float(value) for value in values])
    if name in POSITIVE:
        word = next(value for value in filled if not is_number(value))
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


def _chosen(raw: Mapping[str, np.ndarray], name: str, value: str, source: str) -> dict[str, np.ndarray]:
    if name not in raw:
        raise _unknown(name, raw, source)
    column = raw[name]
    if np.issubdtype(column.dtype, np.number):
        mask = column == float(value) if is_number(value) else np.zeros(len(column), bool)
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
