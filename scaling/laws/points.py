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
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from scaling.base import json_lines
from scaling.base.errors import ScalingError, check_regular, from_os, nearest, plural, refuse
from scaling.laws.formula import condition, evaluate, is_empty, names, numeric, parse, parse_number
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


# Units of a loss that are not nats.
UNITS = {
    "perplexity": re.compile(r"\b(perplexity|ppl)\b"),
    "bits per token": re.compile(r"\b(bits?[ /](per |a )?token|bpt)\b"),
    "bits per byte": re.compile(r"\b(bits?[ /](per |a )?(byte|character)|bpb|bpc)\b"),
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
        mask = np.asarray(mask)
        is_mask = mask.dtype == bool and mask.shape == (len(self),)
        refuse(
            not is_mask, "expected one true or false for each point", "compare a column", key="mask", value=mask.shape
        )
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

    def with_numbers(self, form: Law) -> Points:
        """The points with the columns of a law as the numbers that it reads: a cell may be written as 10M."""
        numbers = {name: self.numbers(name) for name in (*form.inputs, form.target)}
        return replace(self, columns={**self.columns, **numbers})

    def pooled(self) -> dict[str, int]:
        """Columns of words that differ between groups of points, and how many values each has: which no law models."""
        kinds = {name: len(set(column.tolist())) for name, column in self.columns.items() if column.dtype == object}
        names = {"run", "trunk", "status", "held_out"}
        return {name: count for name, count in kinds.items() if name not in names and 1 < count <= len(self) / 2}

    def runs(self) -> dict[str, np.ndarray]:
        """The rows of each run by its name, in the order of the table."""
        rows: dict[str, list[int]] = {}
        for row, name in enumerate(self["run"].tolist()):
            self.refuse(is_empty(name), "names no run", "name the run of every row", f"run, in row {row + 1}")
            rows.setdefault(str(name), []).append(row)
        return {name: np.array(each) for name, each in rows.items()}

    def numbers(self, name: str) -> np.ndarray:
        """A column a law can use: present, numeric, finite, and positive where its meaning is."""
        column = numeric(name, self[name], self.source)
        missing, wrong = int((~np.isfinite(column)).sum()), int((column <= 0).sum()) if name in POSITIVE else 0
        fix = "fill them, or mark those runs as diverged or failed in a `status` column"
        self.refuse(missing, f"{missing} of {len(column)} values are missing or not finite", fix, name)
        fix = f"correct {wrong} of {len(column)} rows, or leave them out: --where '{name}>0'"
        least = float(column.min(initial=np.inf))
        self.refuse(wrong, f"must be positive ({MEANINGS.get(name)})", fix, name, value=least)
        if name in PROPORTIONS:
            most = float(column.max(initial=0.0))
            what, fix = "is a fraction, from 0 to 1", f"write --map '{name}={name}/100' for percent"
            self.refuse(least < 0 or most > 1, what, fix, name, value=least if least < 0 else most)
        return column

    @property
    def nothing_finished(self) -> tuple[str, str]:
        return f"there is no finished run to fit: {self.count()}", "finish some, or correct their `status`"

    def require(self, inputs: Sequence[str], parameters: int, target: str | None = None) -> None:
        """Refuse what determines no law: an absent or one-valued column, fewer distinct scales than parameters."""
        self.refuse_absent(inputs if target is None else (*inputs, target))
        table = np.column_stack([self.numbers(name) for name in inputs])
        self.refuse(not len(self), *self.nothing_finished)
        for name, column in zip(inputs, table.T):
            fix = f"add runs at another {name}, or fit a law without it"
            self.refuse(
                np.ptp(column) == 0, "has one value, so no law in it can be seen", fix, name, value=float(column[0])
            )
        scales = len(np.unique(table, axis=0))
        what = f"{plural(scales, 'distinct scale')} ({', '.join(inputs)}) cannot determine {parameters} parameters"
        fix = f"add {plural(parameters - scales, 'scale')} or more, or fit a law with fewer parameters"
        self.refuse(scales < parameters, what, fix)
        proportions = [name for name in inputs if re.fullmatch(r"p_\d+", name)]
        mixture = table[:, [inputs.index(name) for name in proportions]]
        wrong = ((mixture < 0).any(1) | (np.abs(mixture.sum(1) - 1.0) > 0.01)) & bool(proportions)
        row = int(np.argmax(wrong))
        what = f"{', '.join(proportions)} of row {row + 1} has a negative proportion or does not sum to 1"
        shown = " + ".join(f"{value:g}" for value in mixture[row])
        self.refuse(wrong.any(), what, "give every domain of the mixture a column of its fraction", "p", value=shown)

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
        values = points[rule.left].tolist() if rule.left in points and rule.sign == "=" else []
        choices = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
        fix = nearest(rule.right, choices) if choices and not mask.any() else "choose another bound"
        points.refuse(not mask.any(), f"no row has {rule}", fix, "where")
        points = points.take(mask)
    if "trunk" in points:  # a run without a trunk shares nothing
        labels = ["" if is_empty(label) else str(label) for label in points["trunk"].tolist()]
        labels = [label or f"run {place}" for place, label in enumerate(labels)] if any(labels) else None
        columns = {column: values for column, values in points.columns.items() if column != "trunk"}
        points = replace(points, columns=columns if labels is None else {**columns, "trunk": np.array(labels, object)})
    numbers = {}
    for column in POSITIVE & points.columns.keys():  # one of words is a mistake where a law reads it
        with suppress(ScalingError):
            numbers[column] = numeric(column, points[column])
    points = _finished(replace(points, columns={**points.columns, **numbers}))
    subjects = {*MEANINGS, *points.columns, *SETUP}
    for subject in define.keys() - subjects:
        fix = nearest(subject, subjects)
        raise ScalingError("is neither a column nor a part of the setup", fix=fix, key=f"define {subject}")
    formulas = {column: origin for column, origin in rename.items() if origin not in columns}
    definitions = MappingProxyType({**_definitions(points), **formulas, **define})
    kept_columns = {column: values for column, values in points.columns.items() if not column.endswith(DEFINITION)}
    points = replace(points, columns=kept_columns, definitions=definitions)
    points = _in_nats(points, rename.get("loss", "loss"), computed="loss" in formulas.keys() - define.keys())
    # One run counted twice would narrow every interval; a run may have many rows only along its steps or tokens.
    along = ("run", "S", "D", "step", "kind")
    keys = [each for each in along if each in points] if "run" in points else list(points.columns)
    # As text, by which empty cells are equal.
    rows = Counter(zip(*(map(str, points[each].tolist()) for each in keys), strict=True)) if keys else Counter()
    twice = [dict(zip(keys, row, strict=True)) for row, times in rows.items() if times > 1]
    example = ", ".join(f"{each}={value}" for row in twice[:1] for each, value in list(row.items())[:4])
    what = f"{plural(len(twice), 'run')} {'is' if len(twice) == 1 else 'are'} in the table more than once: {example}"
    points.refuse(twice, what, "keep one row a run, or give each its own `run` or `seed`")
    return points


def group_of(points: Points, name: str | None = None) -> str | None:
    """The column whose equal values share an error: the named one (`none`: no column), or a repeating trunk or run."""
    if name is not None:
        points.refuse_absent([name] if name != "none" else [])
        return None if name == "none" else name
    if "trunk" in points and len(set(points["trunk"])) < len(points):
        return "trunk"  # whose empty cells have labels of their own
    return next((run for run in ("run", "run_name") if run in points and 1 < len(set(points[run])) < len(points)), None)


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
    sources = {rename[name]: column for name, column in renamed.items()}
    columns = {name: column for name, column in table.columns.items() if name not in sources} | renamed
    computed = {name: SHORTHANDS.get(origin, origin) for name, origin in rename.items() if name not in renamed}
    formulas = {name: parse(text, f"map {name}") for name, text in computed.items()}
    while formulas:
        ready = (name for name, formula in formulas.items() if not formulas.keys() - {name} & {*names(formula)})
        name, choices = next(ready, ""), {**sources, **columns}
        circle = [f"{other}={rename[other]}" for other in formulas]
        refuse(not name, "is computed from itself", "name the columns", key="map", value=circle[0])
        formula = formulas.pop(name)
        if absent := [other for other in names(formula) if other not in choices]:
            # `train/los` is a misspelt `train/loss`, not a quotient.
            near = nearest(rename[name], choices)
            fix = near if near.startswith("did you mean") else nearest(absent[0], [*table.columns, *SHORTHANDS])
            raise table.error(f"there is no column {rename[name] if fix is near else absent[0]!r}", fix)
        values = {other: numeric(other, choices[other], table.source) for other in names(formula)}
        with np.errstate(all="ignore"):
            columns[name] = np.full(len(table), evaluate(formula, values), float)
    return replace(table, columns=columns)


def _finished(table: Points) -> Points:
    """The finished runs, with the count of those that were excluded and that failed.

    The column is `status`; or as W&B and others head it (`State`), where every value in it is a status of a run.
    """
    likely = [name for name in table.columns if name.casefold() in ("status", "state")]
    for column in ("status",) if "status" in table else likely:
        words = [re.sub("[ -]", "_", str(state).strip().casefold()) for state in table[column]]
        unknown = [row for row, word in enumerate(words) if word not in STATES]
        if unknown and column != "status":
            continue
        for row in unknown[:1]:
            fix, value = nearest(words[row], STATES), str(table[column][row])
            raise table.error(f"is no known status of a run, in row {row + 1}", fix, column, value=value)
        states = np.array([STATES[word] for word in words], object)
        columns = {"status" if name == column else name: values for name, values in table.columns.items()}
        counts = {kind: int((states == kind).sum()) for kind in ("excluded", "failed")}
        return replace(table, columns=columns, **counts).take(states == "finished")
    return table


def _definitions(table: Points) -> dict[str, str]:
    """The definitions that the table states; two statements about one column are two kinds of points."""
    stated = {}
    for name in table.columns:
        if name in IDENTITIES or name.endswith(DEFINITION):
            kinds = sorted({str(value) for value in table[name]})
            what = f"mixes {' and '.join(map(repr, kinds[:3]))}: their points are not of one law"
            table.refuse(len(kinds) > 1, what, f"choose one by --where {name}=…", name)
            stated |= {name.removesuffix(DEFINITION): kind for kind in kinds if kind}
    return stated


def _in_nats(points: Points, column: str, computed: bool) -> Points:
    """The loss in nats, from the unit that is stated; refuse a loss without one whose name or size is not of nats. A
    loss that a formula has `computed` is taken as it is.
    """
    if "loss" not in points or points["loss"].dtype == object:
        return points
    loss, stated = points["loss"], None if computed else points.definitions.get("loss")
    words, finite = re.sub(r"[_\-./]+", " ", (stated or column).casefold()), loss[np.isfinite(loss)]
    unit = next((name for name, pattern in UNITS.items() if pattern.search(words)), None)
    is_quoted = re.fullmatch("`[^`]+`", column)  # a column under its name, and no formula
    unit = None if re.search(r"\bnats?\b", words) or (computed and not is_quoted) else unit
    if stated is None:
        median, likely = float(np.median(finite)) if len(finite) else 0.0, (unit or "perplexity").replace(" ", "_")
        named = f"the column {column} is {unit} by its name"
        what = named if unit else f"the median is {median:.4g}: more than nats per token can be"
        fix = f"write --define loss={likely} to convert it, or --define loss=nats_per_token"
        # Beyond ln of a vocabulary of a million the median run is worse than a uniform guess.
        points.refuse(unit or median > 14.0, what, fix, "loss")
    elif unit == "perplexity":
        least, fix = float(finite.min(initial=1.0)), "write --define loss=nats_per_token if it is the logarithm"
        points.refuse(least < 1, "is not a perplexity, which is 1 or more", fix, "loss", value=least)
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
        raise ScalingError("there is no such file", file=path, fix=nearest(path.name, near)) from None
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
    for name, times in Counter(header).items():
        refuse(times > 1, f"two columns are called {name!r}", "rename one", file=path, line=1)
    for line, row in rows:
        what = f"has {len(row)} cells under a header of {len(header)}"
        fix = "correct the line" + ("; put 1,000 in quotes" if delimiter == "," else "")
        refuse(len(row) != len(header), what, fix, file=path, line=line)
    columns = {name: [row[place] for _, row in rows] for place, name in enumerate(header)}
    for name in USUAL_NAMES.keys() & columns.keys():  # the line is known here; a column of words may have such a name
        if any(parse_number(cell) is not None for cell in columns[name]):
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
