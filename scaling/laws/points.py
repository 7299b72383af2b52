"""Points: a table of runs, what each of its columns means, and how many planned runs it has.

A law is fitted to points of one kind. Two parameter counts that include and leave out the embedding, two tokenizers or
two validation sets make two tables; a table that mixes them is refused.
"""

from __future__ import annotations

import csv
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from scaling.base import json_lines
from scaling.base.errors import ScalingError, check_regular, from_os, nearest, plural
from scaling.laws.formula import condition, evaluate, is_empty, names, no_column, numeric, parse
from scaling.laws.law import MEANINGS, POSITIVE, Law

# What tables call these columns, in small letters.
USUAL_NAMES = {
    "N": ("params", "parameters", "n_params", "num_params", "num_parameters"),
    "D": ("tokens", "n_tokens", "num_tokens", "train_tokens", "training_tokens"),
    "C": ("flops", "compute", "train_flops", "training_flops"),
    "loss": ("val_loss", "valid_loss", "validation_loss", "eval_loss", "test_loss", "final_loss"),
}

# What may be stated of how runs were trained; the specs of runs state all but the first and the last.
SETUP = (
    *("hypothesis", "architecture", "optimizer", "lr", "schedule", "batch"),
    *("tokenizer", "data", "validation", "noise"),
)

NOT_STATED = "not stated"

SHORTHANDS = {"6ND": "6*N*D", "C/6N": "C/(6*N)", "ND": "N*D", "BS": "B*S"}  # Formulas as the papers write them

# Columns that identify the loss that was measured: two values are two kinds of loss.
IDENTITIES = ("tokenizer", "validation")

DEFINITION = "_definition"  # `N_definition` states what column N counts

STATUS, FINISHED, EXCLUDED, FAILED = "status", "finished", "excluded", "failed"
# How a run ended, as this project, W&B and SLURM write it; one that has not ended has no final loss.
STATES = {
    **dict.fromkeys(("finished", "completed", "complete", "done", "success", "succeeded", "ok"), FINISHED),
    **dict.fromkeys(("diverged", "pruned", "excluded", "beside"), EXCLUDED),
    **dict.fromkeys(("failed", "crashed", "killed", "out_of_memory", "stopped", "missing", "error"), FAILED),
    **dict.fromkeys(("canceled", "cancelled", "timeout", "node_fail", "preempted", "preempting"), FAILED),
    **dict.fromkeys(("running", "pending", "queued"), FAILED),
}

CHANCE, OPTIONS = "chance", "options"

# Nats per token beyond ln of a vocabulary of a million: the median run is worse than a uniform guess.
LARGEST_LOSS = 14.0

# Units of a loss that are no nats.
UNITS = {
    "perplexity": re.compile(r"\b(perplexity|ppl)\b"),
    "bits per token": re.compile(r"\b(bits?[ /](per |a )?token|bpt)\b"),
    "bits per byte": re.compile(r"\b(bits?[ /](per |a )?(byte|character)|bpb|bpc)\b"),
}

TABLE = "points.csv"
# Where a study's folder, a ledger of studies and one of sweeps hold their tables.
WITHIN = ("report/" + TABLE, "studies/*/report/" + TABLE, "sweeps/*/" + TABLE)

LONGEST_CELL = 2**24  # characters: W&B exports whole configs in a cell


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
            raise self.error("the columns differ in length", "give every column a value a run", value=lengths)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def __contains__(self, name: str) -> bool:
        return name in self.columns

    def __getitem__(self, name: str) -> np.ndarray:
        self.refuse_absent([name])
        return self.columns[name]

    def error(self, what: str, fix: str | None, key: str | None = None, **value: Any) -> ScalingError:
        """A mistake in the table."""
        return ScalingError(what, file=self.source or None, key=key, fix=fix, **value)

    @property
    def used(self) -> int:
        """Fitted or held out to test the fit."""
        return len(self) + self.held_out

    @property
    def planned(self) -> int:
        """Every planned run is used, excluded or failed; these are all cases."""
        return self.used + self.excluded + self.failed

    def count(self) -> str:
        others = (self.held_out, "held out"), (self.excluded, "excluded"), (self.failed, "failed")
        return ", ".join([plural(len(self), "point"), *(f"{count} {kind}" for count, kind in others if count)])

    def definition(self, name: str) -> str:
        return self.definitions.get(name, NOT_STATED)

    def where(self, mask: np.ndarray) -> Points:
        """The points of a boolean mask; those left out are counted as excluded."""
        mask = np.asarray(mask)
        if mask.dtype != bool or mask.shape != (len(self),):
            raise ScalingError("needs one true or false a point", key="mask", value=mask.shape, fix="compare a column")
        return replace(self.take(mask), excluded=self.excluded + int((~mask).sum()))

    def take(self, order: np.ndarray) -> Points:
        """The points in another order, or drawn again as a bootstrap does; the counts stay those of the table."""
        return replace(self, columns={name: column[order] for name, column in self.columns.items()})

    def hold_out(self, mask: np.ndarray) -> tuple[Points, Points]:
        """The points to fit and those of the mask, held out to test the fit; both count as used."""
        sides = self.where(~np.asarray(mask)), self.where(mask)
        rest, tested = (replace(s, excluded=self.excluded, held_out=self.used - len(s)) for s in sides)
        return rest, tested

    def with_column(self, name: str, values: np.ndarray, definition: str) -> Points:
        columns = {**self.columns, name: np.asarray(values)}
        return replace(self, columns=columns, definitions={**self.definitions, name: definition})

    def pooled(self) -> dict[str, int]:
        """Columns of words that differ between groups of points, and how many values each has: which no law models."""
        kinds = {name: len(set(column.tolist())) for name, column in self.columns.items() if column.dtype == object}
        names = {"run", "trunk", STATUS, "held_out"}
        return {name: count for name, count in kinds.items() if name not in names and 1 < count <= len(self) / 2}

    def numbers(self, name: str) -> np.ndarray:
        """A column a law can use: present, numeric, finite, and positive where its meaning is."""
        column = numeric(name, self[name], self.source)
        if missing := int((~np.isfinite(column)).sum()):
            fix = "fill them, or mark those runs as diverged or failed in a `status` column"
            raise self.error(f"{missing} of {len(column)} values are missing or not finite", fix, name)
        if name in POSITIVE and len(column) and column.min() <= 0:
            fix = f"correct {int((column <= 0).sum())} of {len(column)} rows, or leave them out: --where '{name}>0'"
            raise self.error(f"must be positive ({MEANINGS[name]})", fix, name, value=float(column.min()))
        return column

    def require(self, inputs: Sequence[str], parameters: int, target: str | None = None) -> None:
        """Refuse what determines no law: an absent or one-valued column, fewer distinct scales than parameters."""
        self.refuse_absent(inputs if target is None else (*inputs, target))
        table = np.column_stack([self.numbers(name) for name in inputs])
        if not len(self):
            fix = "finish some, or correct their `status`"
            raise self.error(f"there is no finished run to fit: {self.count()}", fix)
        for name, column in zip(inputs, table.T):
            if np.ptp(column) == 0:
                fix = f"add runs at another {name}, or fit a law without it"
                raise self.error("has one value, so no law in it can be seen", fix, name, value=float(column[0]))
        scales = len(np.unique(table, axis=0))
        if scales < parameters:
            what = f"{plural(scales, 'distinct scale')} ({', '.join(inputs)}) cannot determine {parameters} parameters"
            fix = f"add {plural(parameters - scales, 'scale')} or more, or fit a law with fewer parameters"
            raise self.error(what, fix)
        if proportions := [name for name in inputs if re.fullmatch(r"p_\d+", name)]:
            mixture = table[:, [inputs.index(name) for name in proportions]]
            wrong = (mixture.min(1) < 0) | (np.abs(mixture.sum(1) - 1.0) > 0.01)
            if wrong.any():
                row = int(np.argmax(wrong))
                what = f"{', '.join(proportions)} of row {row + 1} has a negative proportion or does not sum to 1"
                fix = "give every domain of the mixture a column of its fraction"
                raise self.error(what, fix, "p", value=" + ".join(f"{value:g}" for value in mixture[row]))

    def refuse_absent(self, names: Sequence[str]) -> None:
        """Refuse a table that lacks columns, all of them in one message, with the option that names the likely ones."""
        if absent := [name for name in names if name not in self]:
            described = ", ".join(f"{name!r}" + (f" ({MEANINGS[name]})" if name in MEANINGS else "") for name in absent)
            option = self.map_option(absent)
            choices = nearest(absent[0], self.columns) if len(absent) == 1 else f"of {', '.join(self.columns)}"
            fix = f"name yours by {option} ({choices})" if "COLUMN" in option else f"add {option}"
            are = "is no column" if len(absent) == 1 else "are no columns"
            raise self.error(f"there {are} {described}", fix)

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
    """Points of a file or a folder with a table, a DataFrame, columns by name, or records, one a run; all are checked.

    `rename` maps a name to its column or its formula (`{"loss": "final_loss", "N": "params-embedding"}`), `where`
    chooses rows by conditions (`["C<1e21", "corpus=c4"]`), `define` states definitions the table lacks. A `status`
    column counts the runs that did not finish: diverged and pruned ones are excluded, others failed. `name` is what
    errors call the table.
    """
    rename, define = rename or {}, define or {}
    if isinstance(source, str | Path):
        path = table_of(Path(source)) if Path(source).is_dir() else Path(source)
        raw, name = _read(path), name or str(path)
    elif hasattr(source, "columns"):
        raw = {str(column): list(source[column]) for column in source.columns}
    else:
        raw = source if isinstance(source, Mapping) else _of_records(source)
    columns = {column: _typed(column, list(values)) for column, values in raw.items()}
    points = _renamed(Points(columns, source=name), rename)
    for text in where:
        rule = condition(text, "where")
        mask = rule.mask(points.columns, "where", name)
        if not mask.any():
            values = points[rule.left].tolist() if rule.left in points and rule.sign == "=" else []
            choices = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
            fix = nearest(rule.right, choices) if choices else "choose another bound"
            raise points.error(f"no row has {rule}", fix, "where")
        points = points.take(mask)
    numbers = {column: numeric(column, points[column], name) for column in points.columns if column in POSITIVE}
    points = _finished(replace(points, columns={**points.columns, **numbers}))
    subjects = {*MEANINGS, *points.columns, *SETUP}
    for subject in define:
        if subject not in subjects:
            what, fix = "is no column and no part of the setup", nearest(subject, subjects)
            raise ScalingError(what, key=f"define {subject}", fix=fix)
    formulas = {column: origin for column, origin in rename.items() if origin not in columns}
    definitions = MappingProxyType({**_definitions(points), **formulas, **define})
    kept = {column: values for column, values in points.columns.items() if not column.endswith(DEFINITION)}
    points = _in_nats(replace(points, columns=kept, definitions=definitions), rename.get("loss", "loss"))
    _refuse_duplicates(points)
    return points


def group_of(points: Points, name: str | None = None) -> str | None:
    """The column of runs that share an error: the one named (`none` for no column), or a trunk or run that repeats."""
    if name is not None:
        return None if name == "none" else name
    if "trunk" in points and len(set(points["trunk"])) < len(points):
        return "trunk"
    return next((run for run in ("run", "run_name") if run in points and 1 < len(set(points[run])) < len(points)), None)


def known_chance(form: Law, points: Points) -> dict[str, float]:
    """The law's parameter of chance at the value of the column `chance`, or at one over that of `options`.

    Nothing where the law has no such parameter or the table no such column.
    """
    name = next((name for name in (CHANCE, OPTIONS) if name in points), None)
    if form.chance is None or name is None:
        return {}
    values = np.unique(points.numbers(name))
    if len(values) > 1:
        fix = f"choose one task by --where '{name}={values[0]:g}'"
        raise points.error(f"has {len(values)} values, and a law of a task has one chance level", fix, name)
    chance = float(values[0]) if name == CHANCE else 1.0 / float(values[0])
    if not 0.0 <= chance < 1.0:
        raise points.error("is not 0 or more and below 1", "write 0.25 for 25%", name, value=chance)
    return {form.chance: 1.0 - chance if form.target == "error" else chance}


def _typed(name: str, values: list[Any]) -> np.ndarray:
    """Numbers where every filled cell is a plain one, else words: 10M may be a run's name, and 1e6 a number.

    An empty cell is a missing number or an empty word.
    """
    empty = [is_empty(value) for value in values]
    if not any(isinstance(value, bool | np.bool_) for value in values) and (name in POSITIVE or not all(empty)):
        with suppress(TypeError, ValueError, OverflowError):
            column = np.array([np.nan if none else value for value, none in zip(values, empty, strict=True)], float)
            if column.ndim == 1:
                return column
    return np.array(["" if none else str(value) for value, none in zip(values, empty, strict=True)], dtype=object)


def _renamed(table: Points, rename: Mapping[str, str]) -> Points:
    """The columns under the names of `rename`, the computed ones after those they are computed from."""
    renamed = {name: table[origin] for name, origin in rename.items() if origin in table}
    taken = {rename[name]: column for name, column in renamed.items()}
    columns = {name: column for name, column in table.columns.items() if name not in taken} | renamed

    def unknown(name: str, choices: Iterable[str]) -> ScalingError:
        return table.error(no_column(name), nearest(name, choices))

    computed = {name: SHORTHANDS.get(origin, origin) for name, origin in rename.items() if name not in renamed}
    formulas = {name: parse(text, f"map {name}") for name, text in computed.items()}
    needs = {name: [n for n in names(formula) if n in formulas and n != name] for name, formula in formulas.items()}
    try:
        order = list(TopologicalSorter(needs).static_order())
    except CycleError as error:
        name = error.args[1][0]
        value = f"{name}={rename[name]}"
        raise ScalingError("is computed from itself", key="map", value=value, fix="name the columns") from None
    for name in order:
        choices = {**taken, **columns}
        absent = next((other for other in names(formulas[name]) if other not in choices), None)
        if absent is not None:
            # `train/los` is a misspelt `train/loss`, not a quotient.
            near = nearest(rename[name], choices).startswith("did you mean")
            raise unknown(rename[name], choices) if near else unknown(absent, [*table.columns, *SHORTHANDS])
        values = {other: numeric(other, choices[other], table.source) for other in names(formulas[name])}
        with np.errstate(all="ignore"):
            columns[name] = np.full(len(table), evaluate(formulas[name], values), float)
    return replace(table, columns=columns)


def _finished(table: Points) -> Points:
    """The finished runs, with the count of those that were excluded and that failed.

    The column is `status`; or as W&B and others head it (`State`), where every value in it is a status of a run.
    """

    def spelled(name: str) -> list[str]:
        return [re.sub("[ -]", "_", str(state).strip().casefold()) for state in table[name]]

    likely = (name for name in table.columns if name.casefold() in (STATUS, "state"))
    column = STATUS if STATUS in table else next((name for name in likely if set(spelled(name)) <= STATES.keys()), None)
    if column is None:
        return table
    words = spelled(column)
    for row, word in enumerate(words):
        if word not in STATES:
            what, value = f"is no known status of a run, in row {row + 1}", str(table[column][row])
            raise table.error(what, nearest(word, STATES), column, value=value)
    states = np.array([STATES[word] for word in words], object)
    columns = {STATUS if name == column else name: values for name, values in table.columns.items()}
    counts = {"excluded": int((states == EXCLUDED).sum()), "failed": int((states == FAILED).sum())}
    return replace(table, columns=columns, **counts).take(states == FINISHED)


def _definitions(table: Points) -> dict[str, str]:
    """What the table itself states; two statements about one column are two kinds of points."""
    stated = {}
    for name in table.columns:
        if name not in IDENTITIES and not name.endswith(DEFINITION):
            continue
        kinds = sorted({str(value) for value in table[name]})
        if len(kinds) > 1:
            what = f"mixes {' and '.join(map(repr, kinds[:3]))}: their points are not of one law"
            raise table.error(what, f"choose one by --where {name}=…", name)
        if kinds and kinds != [""]:
            stated[name.removesuffix(DEFINITION)] = kinds[0]
    return stated


def _refuse_duplicates(points: Points) -> None:
    """One run counted twice would narrow every interval; a run may have many rows only along its steps or tokens."""
    along = ("run", "S", "D", "step", "kind")
    keys = [name for name in along if name in points] if "run" in points else list(points.columns)
    rows = Counter(zip(*(points[name].tolist() for name in keys), strict=True)) if keys else Counter()
    twice = [row for row, times in rows.items() if times > 1]
    if twice:
        example = ", ".join(f"{name}={value}" for name, value in list(zip(keys, twice[0], strict=True))[:4])
        verb, fix = "is" if len(twice) == 1 else "are", "keep one row a run, or give each its own `run` or `seed`"
        raise points.error(f"{plural(len(twice), 'run')} {verb} in the table more than once: {example}", fix)


def _in_nats(points: Points, column: str) -> Points:
    """The loss in nats, from the unit that is stated; refuse a loss without one whose name or size is not of nats."""
    if "loss" not in points:
        return points
    loss, stated = points["loss"], points.definitions.get("loss")
    words = re.sub(r"[_\-./]+", " ", (column if stated is None else stated).casefold())
    unit = next((name for name, pattern in UNITS.items() if pattern.search(words)), None)
    unit = None if re.search(r"\bnats?\b", words) else unit
    finite = loss[np.isfinite(loss)]
    if stated is None:
        median = float(np.median(finite)) if len(finite) else 0.0
        if unit or median > LARGEST_LOSS:
            named = f"the column {column} is {unit} by its name"
            what = named if unit else f"the median is {median:.4g}: more than nats per token can be"
            likely = (unit or "perplexity").replace(" ", "_")
            fix = f"write --define loss={likely} to convert it, or --define loss=nats_per_token"
            raise points.error(what, fix, "loss")
    elif unit == "perplexity":
        if len(finite) and finite.min() < 1:
            fix = "write --define loss=nats_per_token if it is the logarithm"
            raise points.error("is no perplexity, which is 1 or more", fix, "loss", value=float(finite.min()))
        with np.errstate(all="ignore"):
            return points.with_column("loss", np.log(loss), f"nats per token, the logarithm of the {stated}")
    elif unit:
        definition = f"nats {unit.removeprefix('bits ')}, ln 2 times the {stated.replace('_', ' ')}"
        return points.with_column("loss", loss * np.log(2.0), definition)
    return points


def table_of(folder: Path) -> Path:
    """The one table of a folder: its own, or that of the one study or sweep in it."""
    tables = sorted(path for pattern in WITHIN for path in folder.glob(pattern))
    if (folder / TABLE).exists() or not tables:  # its reader reports that there is no such file
        return folder / TABLE
    if len(tables) > 1:
        shown = ", ".join([*(str(path.relative_to(folder)) for path in tables[:6]), *(["…"] if tables[6:] else [])])
        raise ScalingError(f"holds {len(tables)} tables", file=folder, fix=f"name one of them: {shown}")
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
        raise ScalingError("there is no such file", file=path, fix=nearest(path.name, near)) from None
    except OSError as error:
        raise from_os(error, "cannot be read").at(file=path) from None
    except UnicodeDecodeError:
        raise ScalingError("is not text in UTF-8", file=path, fix="save it as UTF-8") from None
    if not columns or not len(next(iter(columns.values()))):
        raise ScalingError("holds no rows", file=path, fix="give a table with a header and a row a run")
    return columns


def _separated(path: Path) -> dict[str, list[str]]:
    """CSV or TSV; the header decides between comma, tab and semicolon."""
    csv.field_size_limit(LONGEST_CELL)
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
    for name, times in Counter(header).items():
        if times > 1:
            raise ScalingError(f"two columns are called {name!r}", file=path, line=1, fix="rename one")
    for line, row in rows:
        if len(row) != len(header):
            what = f"has {len(row)} cells under a header of {len(header)}"
            fix = "correct the line" + ("; put 1,000 in quotes" if delimiter == "," else "")
            raise ScalingError(what, file=path, line=line, fix=fix)
    columns = {name: [row[place] for _, row in rows] for place, name in enumerate(header)}
    for name in POSITIVE & columns.keys():  # the line is known here; another column may hold words
        numeric(name, np.array(columns[name], object), str(path), [line for line, _ in rows])
    return columns


def _json_lines(path: Path) -> dict[str, list[Any]]:
    with path.open("rb") as lines:
        return _of_records(dict(_flat(record)) for _, record in json_lines.records(lines, path, nan=True))


def _of_records(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    records = list(rows)
    columns = dict.fromkeys(name for record in records for name in record)
    return {name: [record.get(name) for record in records] for name in columns}


def _flat(record: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Nested records under dotted names, as W&B's exports of a run's config and summary are: `config.N`."""
    for name, value in record.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{above}{name}.")
        else:
            yield above + name, value


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
