"""Columns made points: typed, renamed or computed, chosen by condition, refused where they mix two kinds of loss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any

import numpy as np

from scaling.errors import ScalingError, nearest, plural
from scaling.law.expression import Expression, evaluate, names, parse
from scaling.law.loss_unit import in_nats, refuse_unlikely_nats
from scaling.law.parse_number import is_empty, numeric, parse_column, parse_number
from scaling.law.points import MEANINGS, POSITIVE, SETUP_COLUMNS, SETUP_QUESTIONS, Points
from scaling.law.row_condition import Condition, condition

SHORTHANDS = MappingProxyType({"6ND": "6*N*D", "C/6N": "C/(6*N)", "ND": "N*D", "BS": "B*S"})
"""Formulas as the papers write them; any other is one of `expression.py`."""

RUNS = ("run", "run_name")
"""Columns that name the run a point is of."""

TRUNK = "trunk"
"""The column that names the run whose beginning a run has."""

IDENTITIES = ("tokenizer", "validation")
"""Columns that identify the loss that was measured: two values are two kinds of loss."""

DEFINITION = "_definition"
"""`N_definition` states what column N counts."""

STATUS = "status"
FINISHED, EXCLUDED, FAILED = "finished", "excluded", "failed"
STATES = MappingProxyType(
    {
        **dict.fromkeys(("finished", "completed", "complete", "done", "success", "succeeded", "ok"), FINISHED),
        **dict.fromkeys(("diverged", "pruned", "excluded"), EXCLUDED),
        **dict.fromkeys(("failed", "crashed", "killed", "out_of_memory", "stopped", "missing", "error"), FAILED),
        **dict.fromkeys(("canceled", "cancelled", "timeout", "node_fail", "preempted", "preempting"), FAILED),
        **dict.fromkeys(("running", "pending", "queued"), FAILED),
    }
)
"""How a run ended, as this project, W&B and SLURM write it; one that has not ended has no final loss."""


def from_columns(
    columns: Mapping[str, Iterable[Any]],
    *,
    rename: Mapping[str, str] | None = None,
    where: Mapping[str, str] | Iterable[str] = (),
    define: Mapping[str, str] | None = None,
    pool: Iterable[str] = (),
    best_by: Iterable[str] = (),
    source: str = "",
) -> Points:
    """Points of raw columns, checked.

    `rename` maps a name to its column or its formula (`{"loss": "final_loss", "N": "params-embedding"}`), `where`
    chooses rows by conditions (`["C<1e21", "corpus=c4"]`), `define` states definitions the table lacks, `pool`
    names the identities or definitions that may differ, and `best_by` keeps of each group of equal values the run
    of lowest loss. A `status` column counts the runs that did not finish: diverged and pruned ones are excluded,
    others failed.
    """
    raw = {name: _typed(name, list(values), source) for name, values in columns.items()}
    table = _renamed(raw, rename or {}, source)
    for text in [f"{name}={value}" for name, value in where.items()] if isinstance(where, Mapping) else where:
        table = _chosen(table, condition(text, "where"), source)
    table = {name: _as_numbers(name, column, source) for name, column in table.items()}
    points, excluded, failed = _finished(Points(table, source=source))
    _refuse_unknown("pool", pool, points)
    definitions = _definitions(points, set(pool)) | _formulas(rename or {}, raw)
    _refuse_unstated(define or {}, points)
    points = Points(
        {name: column for name, column in points.columns.items() if not name.endswith(DEFINITION)},
        MappingProxyType(definitions | dict(define or {})),
        excluded,
        failed,
        source=source,
    )
    points = _in_nats(points, (rename or {}).get("loss", "loss"))
    points = _best(points, tuple(best_by))
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


def groups_of(points: Points, clusters: str | None, shared: str | None) -> dict[str, str | None]:
    """The columns of points whose errors belong together, and of runs that share an error; `none` asks for none.

    By default the trunk is shared where it repeats; else the points of one run are a cluster where a run has several.
    """
    if shared is None and clusters is None:
        shared = shared_by(points)
    if clusters is None and shared in (None, "none"):
        clusters = next((name for name in RUNS if name in points and 1 < len(set(points[name])) < len(points)), None)
    return {name: None if of == "none" else of for name, of in (("clusters", clusters), ("shared", shared))}


def shared_by(points: Points) -> str | None:
    """The column that names the trunk of each run, where runs of one trunk are among the points: they share errors."""
    return TRUNK if TRUNK in points and len(set(points[TRUNK])) < len(points) else None


def _typed(name: str, values: list[Any], source: str) -> np.ndarray:
    """Numbers where every filled cell is a plain one, else words; an empty cell is a missing number or empty word."""
    plain = _at_once(values)
    if plain is not None:
        return plain
    filled = [value for value in values if not is_empty(value)]
    if all(_is_plain(value) for value in filled) and (filled or name in POSITIVE):
        return np.array([np.nan if is_empty(value) else parse_number(value) for value in values], float)
    return np.array(["" if is_empty(value) else str(value) for value in values], dtype=object)


def _at_once(values: list[Any]) -> np.ndarray | None:
    """A column of plain numbers, fast; None where it has to be looked at cell by cell."""
    if bool in set(map(type, values)):
        return None
    try:
        column = np.array(values, dtype=float)
    except (TypeError, ValueError, OverflowError):
        return None
    return column if column.ndim == 1 and np.isfinite(column).any() else None


def _is_plain(value: Any) -> bool:
    """A number to any reader: 10M may be a run's name, and is one only where a number is asked for."""
    if isinstance(value, str):
        try:
            float(value)
        except ValueError:
            return False
        return True
    return parse_number(value) is not None


def _as_numbers(name: str, column: np.ndarray, source: str) -> np.ndarray:
    """A column whose meaning is a positive number, as numbers: 10M and 1,000 too."""
    if name not in POSITIVE or np.issubdtype(column.dtype, np.number):
        return column
    values = parse_column(name, column.tolist(), source)
    if values is None:
        row, word = next((row, word) for row, word in enumerate(column) if word and parse_number(word) is None)
        raise ScalingError(
            f"is not a number ({MEANINGS[name]}), in row {row + 1}",
            file=source or None,
            key=name,
            value=word,
            fix="correct the cell",
        )
    return values


def _chosen(table: Mapping[str, np.ndarray], rule: Condition, source: str) -> dict[str, np.ndarray]:
    mask = rule.mask(table, "where", source)
    if not mask.any():
        choices: set[str] = set()
        if rule.left in table:
            choices = {f"{kind:g}" if isinstance(kind, float) else str(kind) for kind in table[rule.left].tolist()}
        fix = nearest(rule.right, choices) if rule.sign == "=" and choices else "choose another bound"
        raise ScalingError(f"no row has {rule}", file=source or None, key="where", fix=fix)
    return {other: values[mask] for other, values in table.items()}


def _renamed(raw: Mapping[str, np.ndarray], rename: Mapping[str, str], source: str) -> dict[str, np.ndarray]:
    """The columns under the names of `rename`, the computed ones after those they are computed from."""
    renamed = {rename[name]: raw[rename[name]] for name in rename if rename[name] in raw}
    columns = {name: column for name, column in raw.items() if name not in renamed}
    columns |= {name: renamed[origin] for name, origin in rename.items() if origin in renamed}
    waiting = {
        name: parse(SHORTHANDS.get(origin, origin), f"map {name}") if _is_formula(origin, raw) else None
        for name, origin in rename.items()
        if origin not in renamed
    }
    while waiting:
        name, formula = next(
            ((name, formula) for name, formula in waiting.items() if formula and not _needs(formula, name, waiting)),
            (None, None),
        )
        if name is None or formula is None:
            wrong = next(iter(waiting))
            if waiting[wrong] is None:
                raise _unknown(rename[wrong], [*raw, *SHORTHANDS], source)
            raise ScalingError(
                "is computed from itself", key="map", value=f"{wrong}={rename[wrong]}", fix="name the columns"
            )
        del waiting[name]
        columns[name] = _computed(rename[name], formula, {**renamed, **columns}, [*raw, *SHORTHANDS], source)
    return columns


def _is_formula(origin: str, raw: Mapping[str, np.ndarray]) -> bool:
    """A lone word that is no column is a misspelt column."""
    return origin in SHORTHANDS or not origin.isidentifier()


def _needs(formula: Expression, name: str, waiting: Mapping[str, Any]) -> bool:
    return any(other in waiting for other in names(formula) if other != name)


def _computed(
    text: str, formula: Expression, columns: Mapping[str, np.ndarray], choices: Iterable[str], source: str
) -> np.ndarray:
    for name in names(formula):
        if name not in columns:
            near = nearest(text, columns)  # `train/los` for the column `train/loss`
            raise (
                _unknown(text, columns, source) if near.startswith("did you mean") else _unknown(name, choices, source)
            )
    values = {name: numeric(name, columns[name], source) for name in names(formula)}
    rows = len(next(iter(columns.values()), ()))
    with np.errstate(all="ignore"):
        return np.broadcast_to(np.asarray(evaluate(formula, values), float), (rows,)).copy()


def _unknown(name: str, choices: Iterable[str], source: str) -> ScalingError:
    return ScalingError(f"there is no column {name!r}", file=source or None, fix=nearest(name, choices))


def _formulas(rename: Mapping[str, str], raw: Mapping[str, np.ndarray]) -> dict[str, str]:
    """A formula is the definition of what it computes."""
    return {name: origin for name, origin in rename.items() if origin not in raw}


def _refuse_unknown(option: str, columns: Iterable[str], points: Points) -> None:
    for name in columns:
        if name not in points and name + DEFINITION not in points:
            raise ScalingError(
                f"there is no column {name!r}",
                file=points.source or None,
                key=option,
                fix=nearest(name, points.columns),
            )


def _refuse_unstated(define: Mapping[str, str], points: Points) -> None:
    """A definition must be of a column or of a question of the checklist."""
    synonyms = chain.from_iterable(SETUP_COLUMNS.values())
    subjects = {*MEANINGS, *points.columns, *SETUP_QUESTIONS, *synonyms}
    for name in define:
        if name not in subjects:
            raise ScalingError(
                "is no column and no question of the checklist",
                key=f"define {name}",
                fix=nearest(name, subjects),
            )


def _in_nats(points: Points, column: str) -> Points:
    """The loss in nats, where a statement or its column's name gives another unit."""
    if "loss" not in points or not np.issubdtype(points["loss"].dtype, np.number):
        return points
    stated = points.definitions.get("loss")
    if stated is None:
        refuse_unlikely_nats(points["loss"], column, points.source)
        return points
    loss, definition = in_nats(points["loss"], stated, points.source)
    return points if loss is points["loss"] else points.with_column("loss", loss, definition)


def _best(points: Points, by: tuple[str, ...]) -> Points:
    """Of each group of rows of equal values in these columns the one of lowest loss; the others are excluded."""
    if not by or not len(points):
        return points
    _refuse_unknown("best-by", by, points)
    if "loss" not in points:
        raise _unknown("loss", points.columns, points.source)
    loss = points.numbers("loss")
    groups = [np.unique(points[name], return_inverse=True)[1].reshape(-1) for name in by]
    group = np.unique(np.column_stack(groups), axis=0, return_inverse=True)[1].reshape(-1)
    order = np.lexsort((loss, group))
    first = np.flatnonzero(np.diff(group[order], prepend=-1))
    mask = np.zeros(len(points), bool)
    mask[order[first]] = True
    return points.where(mask)


def _finished(table: Points) -> tuple[Points, int, int]:
    """The finished runs, and how many were excluded and how many failed."""
    column = _status_column(table)
    if column is None:
        return table, 0, 0
    states = [STATES.get(_spelled(state)) for state in table[column]]
    for row, state in enumerate(states):
        if state is None:
            word = str(table[column][row])
            raise ScalingError(
                f"is no known status of a run, in row {row + 1}",
                file=table.source or None,
                key=column,
                value=word,
                fix=nearest(_spelled(word), STATES),
            )
    used = np.array([state == FINISHED for state in states], bool)
    table = Points(
        {STATUS if name == column else name: values for name, values in table.columns.items()}, source=table.source
    )
    return table.where(used), states.count(EXCLUDED), states.count(FAILED)


def _status_column(table: Points) -> str | None:
    """`status`; or as W&B and others head it (`State`), where every value in it is a status of a run."""
    if STATUS in table:
        return STATUS
    for name in table.columns:
        if name.casefold() in ("status", "state") and all(_spelled(state) in STATES for state in table[name]):
            return name
    return None


def _spelled(state: Any) -> str:
    return str(state).strip().casefold().replace(" ", "_").replace("-", "_")


def _definitions(table: Points, pool: set[str]) -> dict[str, str]:
    """What the table itself states; two statements about one column are two kinds of points."""
    stated = {}
    for name in table.columns:
        subject = name.removesuffix(DEFINITION)
        if name not in IDENTITIES and subject == name:
            continue
        kinds = sorted({str(value) for value in table[name]})
        if len(kinds) > 1 and not {name, subject} & pool:
            raise ScalingError(
                f"mixes {' and '.join(map(repr, kinds[:3]))}: their points are not of one law",
                file=table.source or None,
                key=name,
                fix=f"choose one by --where {name}=…, or pool them openly by --pool {name}",
            )
        if kinds and kinds != [""]:
            stated[subject] = " or ".join(kinds)
    return stated


def _refuse_duplicates(points: Points) -> None:
    """One run counted twice would narrow every interval; a run may have many rows only along its steps or tokens."""
    along = ("run", "S", "D", "step", "kind")
    keys = [name for name in along if name in points] if "run" in points else list(points.columns)
    rows = Counter(zip(*(points[name].tolist() for name in keys), strict=True)) if keys else Counter()
    twice = [row for row, times in rows.items() if times > 1]
    if twice:
        example = ", ".join(f"{name}={value}" for name, value in list(zip(keys, twice[0], strict=True))[:4])
        raise ScalingError(
            f"{plural(len(twice), 'run')} {'is' if len(twice) == 1 else 'are'} in the table more than once: {example}",
            file=points.source or None,
            fix="keep one row a run, or give each its own `run` or `seed`",
        )
