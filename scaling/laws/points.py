"""Points: a table of runs, what each of its columns means, and how many planned runs it has.

A law is fitted to points of one kind. Two parameter counts that include and leave out the embedding, two tokenizers or
two validation sets make two tables; a table that mixes them is refused.
"""

from __future__ import annotations

import csv
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from scaling.base import json_lines
from scaling.base.errors import ScalingError, check_regular, from_os, nearest, plural, refuse
from scaling.base.printing import unescaped
from scaling.laws.formula import evaluate, is_empty, matching, numeric, parse, parse_number
from scaling.laws.formula import names as variables
from scaling.laws.law import MEANINGS, POSITIVE, PROPORTIONS, Law

# What tables call these columns, in small letters.
USUAL_NAMES = {
    "N": ("params", "parameters", "n_params", "num_params", "num_parameters"),
    "D": ("tokens", "n_tokens", "num_tokens", "train_tokens", "training_tokens", "total_tokens"),
    "C": ("flops", "compute", "train_flops", "training_flops"),
    "loss": ("val_loss", "valid_loss", "validation_loss", "eval_loss", "test_loss", "final_loss"),
}

# What may be stated of how runs were trained; the specs of runs state all but the first and the last.
SETUP = (
    *("hypothesis", "architecture", "optimizer", "lr", "schedule", "batch"),
    *("tokenizer", "data", "validation", "noise"),
)


SHORTHANDS = {"6ND": "6*N*D", "C/6N": "C/(6*N)", "ND": "N*D", "BS": "B*S"}  # Formulas as the papers write them

# Columns that identify the loss that was measured: two values are two kinds of loss.
IDENTITIES = ("tokenizer", "validation")

DEFINITION = "_definition"  # `N_definition` states what column N counts

# How a run ended, as this project, W&B and SLURM write it; one that has not ended has no final loss.
STATES = {
    **dict.fromkeys(("finished", "completed", "complete", "done", "success", "succeeded", "ok"), "finished"),
    **dict.fromkeys(("diverged", "pruned", "excluded", "beside"), "excluded"),
    **dict.fromkeys(("failed", "crashed", "killed", "out_of_memory", "stopped", "missing", "error"), "failed"),
    **dict.fromkeys(("canceled", "cancelled", "timeout", "node_fail", "preempted", "preempting"), "failed"),
    **dict.fromkeys(("running", "pending", "queued"), "failed"),
}


# Units of a loss by the words that name them.
UNITS = {
    "nats": re.compile(r"\bnats?\b"),
    "perplexity": re.compile(r"\b(perplexity|ppl)\b"),
    "bits per token": re.compile(r"\b(bits?[ /](per |a )?token|bpt)\b"),
    "bits per byte": re.compile(r"\b(bits?[ /](per |a )?(byte|character)|bpb|bpc)\b"),
}

# The definition of a loss in nats, by the unit that it had.
NATS = {
    "perplexity": "nats per token, the logarithm of the {0}",
    "bits per token": "nats per token, ln 2 times the {1}",
    "bits per byte": "nats per byte, ln 2 times the {1}",
}

TABLE = "points.csv"
# Where a study's folder, a ledger of studies and one of sweeps hold their tables.
WITHIN = ("report/" + TABLE, "studies/*/report/" + TABLE, "sweeps/*/" + TABLE)


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
        fix = "give every column a value a run"
        self.refuse(len(set(lengths.values())) > 1, "the columns differ in length", fix, value=lengths)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def __contains__(self, name: str) -> bool:
        return name in self.columns

    def __getitem__(self, name: str) -> np.ndarray:
        self.refuse_absent([name])
        return self.columns[name]

    def refuse(self, condition: object, what: str, fix: str | None, key: str | None = None, **value: Any) -> None:
        """Refuse the table where a condition holds."""
        if condition:
            raise self.error(what, fix, key, **value)

    def error(self, what: str, fix: str | None, key: str | None = None, **value: Any) -> ScalingError:
        """A mistake in the table."""
        return ScalingError(what, fix=fix, file=self.source or None, key=key, **value)

    @property
    def used(self) -> int:
        """Fitted or held out to test the fit."""
        return len(self) + self.held_out

    def count(self) -> str:
        others = (self.held_out, "held out"), (self.excluded, "excluded"), (self.failed, "failed")
        return ", ".join([plural(len(self), "point"), *(f"{count} {kind}" for count, kind in others if count)])

    def definition(self, name: str) -> str:
        return self.definitions.get(name, "not stated")

    def where(self, mask: np.ndarray) -> Points:
        """The points of a boolean mask; those left out are counted as excluded."""
        is_mask, fix = np.shape(mask) == (len(self),) and np.asarray(mask).dtype == bool, "compare a column"
        refuse(not is_mask, "expected one true or false for each point", fix, key="mask", value=np.shape(mask))
        rows = self.take(mask)
        return replace(rows, excluded=self.excluded + len(self) - len(rows))

    def take(self, rows: np.ndarray) -> Points:
        """The points of a mask or at some places; the counts stay those of the table."""
        return replace(self, columns={name: column[rows] for name, column in self.columns.items()})

    def hold_out(self, mask: np.ndarray) -> tuple[Points, Points]:
        """The points to fit and those of the mask, held out to test the fit; both count as used."""
        sides = self.where(~np.asarray(mask)), self.where(mask)
        rest, tested = (replace(s, excluded=self.excluded, held_out=self.used - len(s)) for s in sides)
        return rest, tested

    def with_column(self, name: str, values: np.ndarray, definition: str) -> Points:
        columns = {**self.columns, name: np.asarray(values)}
        return replace(self, columns=columns, definitions={**self.definitions, name: definition})

    def with_numbers(self, form: Law) -> Points:
        """The points with the columns of a law as the numbers that it reads: a cell may be written as 10M."""
        numbers = {name: self.numbers(name) for name in (*form.inputs, form.target)}
        return replace(self, columns={**self.columns, **numbers})

    def pooled(self) -> dict[str, int]:
        """Columns of words that differ between groups of points, and how many values each has: which no law models."""
        words = {name: column for name, column in self.columns.items() if column.dtype == object}
        kinds = {name: len(set(words[name])) for name in words if name not in ("run", "trunk", "status", "held_out")}
        return {name: count for name, count in kinds.items() if 1 < count <= len(self) / 2}

    def labels(self, name: str) -> np.ndarray:
        """The cells of a column whose equal values share an error; a row whose cell is empty shares none."""
        return np.array([f"row {row}" if is_empty(cell) else str(cell) for row, cell in enumerate(self[name])], object)

    def runs(self) -> dict[str, np.ndarray]:
        """The rows of each run by its name, in the order of the table."""
        rows: dict[str, list[int]] = {}
        for row, name in enumerate(self["run"].tolist()):
            what = f"names no run, in row {row + 1} of the {plural(len(self), 'row')} in use"
            self.refuse(is_empty(name), what, "name the run of every row", "run")
            rows.setdefault(str(name), []).append(row)
        return {name: np.array(each) for name, each in rows.items()}

    def numbers(self, name: str) -> np.ndarray:
        """A column a law can use: present, numeric, finite, and positive where its meaning is."""
        column = numeric(name, self[name], self.source)
        missing, wrong = int((~np.isfinite(column)).sum()), int((column <= 0).sum()) if name in POSITIVE else 0
        fix = "fill them, or mark those runs as diverged or failed in a `status` column"
        self.refuse(missing, f"{missing} of {len(column)} values are missing or not finite", fix, name)
        low, high = float(column.min(initial=np.inf)), float(column.max(initial=0.0))
        fix = f"correct {wrong} of {len(column)} rows, or leave them out: --where '{name}>0'"
        self.refuse(wrong, f"must be positive ({MEANINGS.get(name)})", fix, name, value=low)
        what, fix = "is a fraction, from 0 to 1", f"write --map '{name}={name}/100' for percent"
        is_fraction = low >= 0 and high <= 1
        self.refuse(name in PROPORTIONS and not is_fraction, what, fix, name, value=low if low < 0 else high)
        return column

    def refuse_absent(self, names: Sequence[str]) -> None:
        """Refuse a table that lacks columns, all of them in one message, with the option that names the likely ones."""
        if absent := [name for name in names if name not in self]:
            described = ", ".join(f"{name!r}" + (f" ({MEANINGS[name]})" if name in MEANINGS else "") for name in absent)
            option, is_one = self.map_option(absent), len(absent) == 1
            choices = nearest(absent[0], self.columns) if is_one else f"of {', '.join(self.columns)}"
            fix = f"name yours by {option} ({choices})" if "COLUMN" in option else f"add {option}"
            raise self.error(f"there {'is no column' if is_one else 'are no columns'} {described}", fix)

    def map_option(self, names: Sequence[str]) -> str:
        """`--map N=params loss=COLUMN`: for each name the one column whose name is alike, or usual for it."""
        pairs = []
        for name in names:
            usual = {name.casefold(), *USUAL_NAMES.get(name, ())}
            likely = [column for column in self.columns if re.split(r"[./]", column)[-1].casefold() in usual]
            pairs.append(shlex.quote(f"{name}={likely[0] if len(likely) == 1 else 'COLUMN'}"))
        return f"--map {' '.join(pairs)}"


def load_points(
    source: Any,
    *,
    rename: Mapping[str, str] | None = None,
    where: Iterable[str] = (),
    define: Mapping[str, str] | None = None,
    name: str = "",
) -> Points:
    """Points of a file or a folder with a table, a DataFrame, columns by name, or records of runs; all are checked.

    `rename` maps a name to its column or its formula (`{"loss": "final_loss", "N": "params-embedding"}`), `where`
    chooses rows by conditions (`["C<1e21", "corpus=c4"]`), `define` states definitions the table lacks. A `status`
    column counts the runs that did not finish: diverged and pruned runs are excluded, others failed. Errors call the
    table `name`.
    """
    define = define or {}
    if isinstance(source, str | Path):
        path = table_of(Path(source)) if Path(source).is_dir() else Path(source)
        table, name = _read(path), name or str(path)
    elif hasattr(source, "columns"):
        table = {str(column): list(source[column]) for column in source.columns}
    else:
        table = source if isinstance(source, Mapping) else _of_records(source)
    raw = {column: np.fromiter(values, object) for column, values in table.items()}
    names = {new: origin.strip("`") if origin.strip("`") in raw else origin for new, origin in (rename or {}).items()}
    formulas = {new: origin for new, origin in names.items() if origin not in raw}
    renamed = _computed(Points(raw, source=name), names, formulas)
    points = replace(renamed, columns={column: _typed(column, cells) for column, cells in renamed.columns.items()})
    for text in where:
        mask = matching(text, points.columns, "where", name)
        points.refuse(not mask.any(), f"no row has {text}", "choose another bound", "where")
        points = points.take(mask)
    points = _finished(points)
    what = f"there is no finished run to fit: {points.count()}"
    points.refuse(not len(points), what, "finish some, or correct their `status`")
    subjects = {*MEANINGS, *points.columns, *SETUP}
    for subject in define.keys() - subjects:
        fix = nearest(subject, subjects)
        raise ScalingError("is neither a column nor a part of the setup", fix=fix, key=f"define {subject}")
    definitions = MappingProxyType({**_definitions(points), **formulas, **define})
    columns = {name: values for name, values in points.columns.items() if not name.endswith(DEFINITION)}
    points = replace(points, columns=columns, definitions=definitions)
    points = _in_nats(points, names.get("loss", "loss"), is_computed="loss" in formulas.keys() - define.keys())
    # One run counted twice would narrow every interval; a run may have many rows only along its steps or tokens.
    along = ("run", "S", "D", "step", "kind")
    keys = [each for each in along if each in points] if "run" in points else list(points.columns)
    rows = Counter(zip(*(map(str, points[each]) for each in keys)))  # as text, by which empty cells are equal
    twice = [row for row, times in rows.items() if times > 1]
    example = ", ".join(f"{each}={value}" for row in twice[:1] for each, value in list(zip(keys, row))[:4])
    what = f"{plural(len(twice), 'run')} {'is' if len(twice) == 1 else 'are'} in the table more than once: {example}"
    points.refuse(twice, what, "keep one row a run, or give each its own `run` or `seed`")
    return points


def group_of(points: Points, name: str | None = None) -> str | None:
    """The column whose equal values share an error: the named one (`none`: no column), or a repeating trunk or run."""
    if name is not None:
        points.refuse_absent([name] if name != "none" else [])
        return None if name == "none" else name
    fewest = {"trunk": 1, "run": 2, "run_name": 2}  # groups of each
    columns = (each for each in fewest if each in points)
    return next((each for each in columns if fewest[each] <= len(set(points.labels(each))) < len(points)), None)


def known_chance(form: Law, points: Points) -> dict[str, float]:
    """The law's parameter of chance at the value of the column `chance`, or at one over that of `options`.

    Nothing where the law has no such parameter or the table no such column.
    """
    name = next((name for name in ("chance", "options") if name in points), None)
    if form.chance is None or name is None:
        return {}
    values = np.unique(points.numbers(name))
    fix = f"choose one task by --where '{name}={values[0]:g}'"
    points.refuse(len(values) > 1, f"has {len(values)} values, and a law of a task has one chance level", fix, name)
    chance = float(values[0]) if name == "chance" else 1.0 / float(values[0])
    points.refuse(not 0.0 <= chance < 1.0, "is not 0 or more and below 1", "write 0.25 for 25%", name, value=chance)
    return {form.chance: 1.0 - chance if form.target == "error" else chance}


def _typed(name: str, cells: np.ndarray) -> np.ndarray:
    """Numbers where every filled cell is one, else words. 10M is a number under the name of a column that holds
    positive numbers alone, and may be a run's name elsewhere. An empty cell is a missing number or an empty word.
    """
    empty, is_bool = [is_empty(cell) for cell in cells], any(isinstance(cell, bool | np.bool_) for cell in cells)
    if not is_bool and (name in POSITIVE or not all(empty)):
        with suppress(TypeError, ValueError, OverflowError):
            return np.where(empty, np.nan, cells).astype(float)
    if name in POSITIVE:
        with suppress(ScalingError):  # a word is a mistake where a law reads it
            return numeric(name, cells)
    return np.array(["" if none else str(cell) for none, cell in zip(empty, cells)], object)


def _computed(table: Points, names: Mapping[str, str], formulas: Mapping[str, str]) -> Points:
    """The columns under their new names, and those of formulas, each after the columns that it is computed from."""
    renamed = {name: table[origin] for name, origin in names.items() if name not in formulas}
    columns = {name: column for name, column in table.columns.items() if name not in names.values()} | renamed
    parsed = {name: parse(SHORTHANDS.get(text, text), f"map {name}") for name, text in formulas.items()}
    needs = {name: parsed.keys() & {*variables(formula)} - {name} for name, formula in parsed.items()}
    try:
        order = [*TopologicalSorter(needs).static_order()]
    except CycleError as error:
        name = error.args[1][0]
        value = f"{name}={names[name]}"
        raise ScalingError("is computed from itself", fix="name the columns", key="map", value=value) from None
    for name in order:
        choices = {**table.columns, **columns}
        if absent := [other for other in variables(parsed[name]) if other not in choices]:
            raise table.error(f"there is no column {absent[0]!r}", nearest(absent[0], [*choices, *SHORTHANDS]))
        values = {other: numeric(other, choices[other], table.source) for other in variables(parsed[name])}
        with np.errstate(all="ignore"):
            columns[name] = np.full(len(table), evaluate(parsed[name], values), float)
    return replace(table, columns=columns)


def _finished(table: Points) -> Points:
    """The finished runs, with the count of those that were excluded and that failed.

    The column is `status`; or as W&B and others head it (`State`), where every value in it is a status of a run.
    """
    column = next((name for name in sorted(table.columns, reverse=True) if name.casefold() in ("status", "state")), "")
    words = [re.sub("[ -]", "_", str(state).strip().casefold()) for state in table.columns.get(column, ())]
    unknown = next((row for row, word in enumerate(words) if word not in STATES), None)
    if not words or (unknown is not None and column != "status"):
        return table
    if unknown is not None:
        what, fix = f"is no known status of a run, in row {unknown + 1}", nearest(words[unknown], STATES)
        raise table.error(what, fix, column, value=str(table[column][unknown]))
    states = [STATES[word] for word in words]
    columns = {"status" if name == column else name: values for name, values in table.columns.items()}
    table = replace(table, columns=columns, excluded=states.count("excluded"), failed=states.count("failed"))
    return table.take(np.array(states) == "finished")


def _definitions(table: Points) -> dict[str, str]:
    """The definitions that the table states; two statements about one column are two kinds of points."""
    stated = {}
    for name in table.columns:
        if name in IDENTITIES or name.endswith(DEFINITION):
            kinds = sorted(set(map(str, table[name])))
            what = f"mixes {' and '.join(map(repr, kinds[:3]))}: their points are not of one law"
            table.refuse(len(kinds) > 1, what, f"choose one by --where {name}=…", name)
            stated |= {name.removesuffix(DEFINITION): kind for kind in kinds if kind}
    return stated


def _in_nats(points: Points, column: str, is_computed: bool) -> Points:
    """The loss in nats, from the unit that is stated; refuse a loss without one whose name or size is not of nats. A
    loss that a formula has computed is taken as it is.
    """
    if "loss" not in points or points["loss"].dtype == object:
        return points
    loss, stated = points["loss"], None if is_computed else points.definitions.get("loss")
    words = re.sub(r"[_\-./]+", " ", (stated or ("" if is_computed else column)).casefold())
    unit = next((name for name, pattern in UNITS.items() if pattern.search(words)), None)
    if unit == "nats" or (stated and unit is None):
        return points
    if stated and unit:
        least, fix = (
            float(np.where(np.isfinite(loss), loss, 1.0).min(initial=1.0)),
            "write --define loss=nats_per_token if it is the logarithm",
        )
        is_wrong = unit == "perplexity" and least < 1
        points.refuse(is_wrong, "is not a perplexity, which is 1 or more", fix, "loss", value=least)
        with np.errstate(all="ignore"):
            nats = np.log(loss) if unit == "perplexity" else loss * np.log(2.0)
        return points.with_column("loss", nats, NATS[unit].format(stated, stated.replace("_", " ")))
    finite, likely = loss[np.isfinite(loss)], (unit or "perplexity").replace(" ", "_")
    median = float(np.median(finite)) if len(finite) else 0.0
    named = f"the column {column} is {unit} by its name"
    what = named if unit else f"the median is {median:.4g}: more than nats per token can be"
    fix = f"write --define loss={likely} to convert it, or --define loss=nats_per_token"
    # Beyond ln of a vocabulary of a million the median run is worse than a uniform guess.
    points.refuse(unit or median > 14.0, what, fix, "loss")
    return points


def table_of(folder: Path) -> Path:
    """The one table of a folder: its own, or that of the one study or sweep in it."""
    tables = sorted(path for pattern in WITHIN for path in folder.glob(pattern))
    if (folder / TABLE).exists() or not tables:  # its reader reports that there is no such file
        return folder / TABLE
    shown = ", ".join([*(str(path.relative_to(folder)) for path in tables[:6]), *(["…"] if tables[6:] else [])])
    refuse(len(tables) > 1, f"holds {len(tables)} tables", f"name one of them: {shown}", file=folder)
    return tables[0]


def _read(path: Path) -> dict[str, list[Any]]:
    """The columns of a file."""
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        what = f"no reader for {path.suffix or 'a file without a suffix'}"
        raise ScalingError(what, file=path, fix=f"give {', '.join(READERS)}")
    check_regular(path)
    try:
        columns = reader(path)
    except FileNotFoundError:
        near = [file.name for file in path.parent.iterdir() if file.suffix in READERS] if path.parent.is_dir() else []
        fix = nearest(path.name, near) if near else "name a table, or a folder with one; a sweep writes it at its end"
        raise ScalingError("there is no such file", file=path, fix=fix) from None
    except OSError as error:
        raise from_os(error, "cannot be read").at(file=path) from None
    except UnicodeDecodeError:
        raise ScalingError("is not text in UTF-8", file=path, fix="save it as UTF-8") from None
    is_empty = not columns or not len(next(iter(columns.values())))
    refuse(is_empty, "holds no rows", "give a table with a header and a row a run", file=path)
    return columns


def _separated(path: Path) -> dict[str, list[str]]:
    """CSV or TSV; the header decides between comma, tab and semicolon."""
    csv.field_size_limit(2**24)  # characters of a cell: W&B exports whole configs in one
    with path.open(newline="", encoding="utf-8-sig") as lines:
        delimiter = "\t" if path.suffix.lower() == ".tsv" else max(",\t;", key=lines.readline().count)
        lines.seek(0)
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
        try:
            header = [name.strip() for name in next(reader, [])]
            rows = [(reader.line_num, row) for row in reader if row]
        except csv.Error as error:
            line = reader.line_num
            raise ScalingError(f"is not CSV ({error})", file=path, line=line, fix="correct the line") from None
    twice = next((name for name in header if header.count(name) > 1), None)
    refuse(twice is not None, f"two columns are called {twice!r}", "rename one", file=path, line=1)
    for line, row in rows:
        what = f"has {len(row)} cells under a header of {len(header)}"
        refuse(len(row) != len(header), what, "correct the line; put 1,000 in quotes", file=path, line=line)
    columns = {name: list(map(unescaped, cells)) for name, cells in zip(header, zip(*(row for _, row in rows)))}
    for name in USUAL_NAMES.keys() & columns.keys():  # the line is known here; a column of words may have such a name
        if any(parse_number(cell) is not None for cell in columns[name]):
            numeric(name, np.array(columns[name], object), str(path), [line for line, _ in rows])
    return columns


def _json_lines(path: Path) -> dict[str, list[Any]]:
    """Records, nested ones under dotted names, as W&B's exports of a run's config and summary are: `config.N`."""
    with path.open("rb") as lines:
        return _of_records(json_lines.flat(record) for _, record in json_lines.records(lines, path, nan=True))


def _of_records(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    records = list(rows)
    columns = dict.fromkeys(name for record in records for name in record)
    return {name: [record.get(name) for record in records] for name in columns}


def _parquet(path: Path) -> dict[str, list[Any]]:
    import pyarrow
    import pyarrow.parquet

    try:
        return pyarrow.parquet.read_table(path).to_pydict()
    except pyarrow.ArrowInvalid as error:
        reason = str(error).splitlines()[0]
        raise ScalingError(f"is not parquet ({reason})", file=path, fix="write it again") from None


READERS: dict[str, Callable[[Path], dict[str, list[Any]]]] = {
    **dict.fromkeys((".csv", ".tsv"), _separated),
    **dict.fromkeys((".jsonl", ".ndjson"), _json_lines),
    ".parquet": _parquet,
}
