"""Question: a study's YAML, with its question, the runs that answer it, and the held-out runs that test it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from scaling.base.errors import ScalingError, nearest
from scaling.base.numbers import NonNegativeFloat, PositiveFloat, PositiveInt, is_number
from scaling.config import schema
from scaling.config.compose import load, table_file
from scaling.config.document import Config, document, of_values
from scaling.config.files import find, shipped
from scaling.config.schema import check, check_keys
from scaling.config.strict_yaml import COMMAND_LINE, quantity
from scaling.ledger.identity import UNCOUNTED
from scaling.studies.grid import Cell, Grid, Price, Product

# Every field of a study's file, and what it states.
KEYS = {
    "question": "one sentence, the heading of the report",
    "base": "the start of every run: a model, a table or a file",
    "set": "keys of a config that hold for every run, such as {train.batch: 16}",
    "grid": "axes; their product gives the fitted runs: {size: [10k, 30k], train.tokens: [1M, 2M]}; or a list of grids",
    "held_out": "axes of the runs that test the fit and are not fitted",
    "tune": "true: each run is also trained at half and at twice its learning rate and batch, to check its tuning",
    "rate": "a rule for the learning rate of each run: `scaling explain rate`",
    "law": "the law to fit, or a list of laws (the first one answers): `scaling explain law`",
    "target": "the target of the prediction, such as {N: 1B, D: 20B} (default: the most expensive held-out run)",
    "suppose": "the law's parameters and the noise of log loss that a plan assumes, such as {E: 1.9, noise: 0.003}",
    "define": "the setup of the runs and its reasons in your words, for the report",
    "tasks": "tasks for finetuning each run: [cola, sst2], or with keys of these runs: {cola: {train.epochs: 5}}",
    "resources": "the resources of each run (default: by its cost), such as {threads: 2, gpus: 0.5, memory: 8}",
    "minutes": "the longest time of the study; a machine that needs more uses the scale `small`",
    "at": "further scales of the study by name, each with the fields that differ",
}
# The fields that a study needs, each with an example.
NEEDED = {
    "question": "write question: How does loss fall with size?",
    "base": "write base: decoder",
    "grid": "write grid: {size: [10k, 30k, 100k], train.tokens: [1M, 2M, 4M]}",
}
RESOURCES: dict[str, Any] = {
    "threads": PositiveInt,
    "gpus": NonNegativeFloat,  # of one, or a whole number
    "memory": PositiveFloat,  # in GB
    "minutes": PositiveFloat,  # until a cluster may end it
}
SMALL = "small"  # the scale that a study takes on a machine that would need longer than its `minutes`
MAPPINGS = ("set", "target", "suppose", "define", "resources", "at")  # fields

MOST_RUNS = 100_000
LONGEST_NAME = 100
BUDGETS = ("train.tokens", "trainer.max_steps", "train.epochs")
PLAIN = (str, int, float)
"""What most keys hold: to ask of these whether they are mappings takes as long as all else that is done with them."""
COMPARED = "evaluate.windows=whole_at_end"  # the word that a plan adds to its runs

OF_A_RUN = re.compile(r"(?:at\.([\w-]+)\.)?(set|(?:grid|held_out)(?:\.\d+)?(?:\.axes)?)\.(.+)")
"""Where a study has keys of its runs: the scale, the part, and the key, which in an axis is followed by a number."""

Line = Mapping[str, Any]
Source = str | Path | Line
"""A study: the name of a shipped one, a path, or its fields with a `name`."""


@dataclass(frozen=True)
class Question:
    """`set` holds for every run; `grid` and `held_out` are grids, or lists of them: axes, or a kind with its keys.

    An axis `row` goes over rows of the table that `base` names; `all` are all of them. `rate` is a rule for the runs'
    learning rates. The first of several laws answers; a comparison of rows needs none. `suppose` is the law (and the
    `noise` of log loss) that a plan assumes; `at` is the chosen scale, if a study has several; each run is finetuned on
    `tasks`, with the keys of these runs; `resources` are the resources of each run; if the study would take longer than
    `minutes`, its scale `small` is used. `source` is its name or its file, as a command names it.
    """

    name: str
    question: str
    base: str
    set: Mapping[str, Any]
    grid: Line | Sequence[Line]
    laws: Sequence[str] = ()
    held_out: Line | Sequence[Line] = field(default_factory=dict)
    tune: bool = False
    rate: Line | None = None
    target: Mapping[str, float] = field(default_factory=dict)
    suppose: Mapping[str, float] = field(default_factory=dict)
    define: Mapping[str, str] = field(default_factory=dict)
    tasks: Mapping[str, Line] = field(default_factory=dict)
    resources: Mapping[str, float] = field(default_factory=dict)
    minutes: float | None = None
    at: str | None = None
    source: str = ""

    @property
    def law(self) -> str | None:
        """The first law, which answers the question."""
        return next(iter(self.laws), None)

    @property
    def compares_rows(self) -> bool:
        """Whether an axis goes over rows of a table."""
        return "row" in axes_of(self.grid)

    def cells(self, price: Price) -> Iterator[tuple[Cell, bool]]:
        """Each run's own keys, and whether it is held out. A held-out run has the grid's largest budget where neither
        its own keys nor `set` give it one.
        """
        largest: Cell = {}
        for line in filter(None, _each(self.grid)):
            for cell in _grid(line).cells(price):
                for key in BUDGETS:
                    number = _numbers(cell.get(key))
                    if is_number(number) and number > _numbers(largest.get(key, 0)):
                        largest = {key: cell[key]}
                yield cell, False
        has_budget = any(key in self._common for key in BUDGETS)
        for line in filter(None, _each(self.held_out)):
            for cell in _grid(line).cells(price):
                yield cell if has_budget or any(key in cell for key in BUDGETS) else {**cell, **largest}, True

    def overrides(self, cell: Cell) -> tuple[str, ...]:
        """A run's keys as words of the command line."""
        words = flat(cell)
        common = (word for key, word in self._common.items() if key not in words)
        return (*common, *(word_of(key, value) for key, value in words.items()))

    @cached_property
    def _common(self) -> dict[str, str]:
        return {key: word_of(key, value) for key, value in flat(self.set).items()}


def compared(base: str, words: tuple[str, ...], default: Any = None) -> tuple[str, ...]:
    """The words of a run that is compared with others: its last evaluation is of all windows, whatever a tenth of its
    own compute pays for, unless the words or the files set it. `default` is the files' number, where that is known.
    """
    if any(word.partition("=")[0] in ("evaluate", "evaluate.windows") for word in words):
        return words
    default = default or load(base, words)["evaluate.windows"]
    return (COMPARED, *words) if default == "auto" else words


def read(source: Source, at: str | None = None, words: Sequence[str] = ()) -> Question:
    """A study at one of its scales.

    Scale and `words`, which hold for every run, make it another study, so its name contains them.
    """
    config, stem, path = _opened(source)
    is_shipped = path is not None and path.parent == shipped() / "study"
    file = stem if is_shipped else f"{stem}.yaml" if path is None else path.name
    top = _layer(config)
    layers = {None: top, **{name: _layer(config, f"at.{name}") for name in top.get("at", {})}}
    if at not in layers:
        fix = nearest(str(at), filter(None, layers))
        raise ScalingError("the study has no such scale", key="at", value=at, fix=fix)
    # Each scale is checked, so that a mistake in one shows before another is trained.
    scaled = {scale: _scaled(config, path, layers, scale) for scale in layers}[at]
    laws = scaled.pop("law", [])
    return Question(**{**scaled, "laws": laws, "name": named(stem, at, words), "at": at, "source": file})


def _opened(source: Source) -> tuple[Config, str, Path | None]:
    """The document of a study, its name, and its file."""
    if not isinstance(source, Mapping):
        path = find("study", str(source))
        return document(path), path.stem, path
    config = of_values("the study", {key: source[key] for key in source if key != "name"})
    for key in config.origin:
        if not isinstance(config[key], dict | list | str | int | float | None):
            raise config.error(key, "expected text, a number, true, false or null")
    name = source.get("name", "study")
    if not isinstance(name, str) or not re.fullmatch(r"[\w-][\w.-]*", name, re.ASCII):
        raise ScalingError("expected letters, digits, '.', '_' and '-'", file="the study", key="name", value=name)
    return config, name, None


@contextmanager
def placed(source: Source, at: str | None, words: Sequence[str]) -> Iterator[None]:
    """Report a mistake in the keys of runs at the line of the study, at this scale, that has the key. Mistakes in
    `words` are left as they are.
    """
    try:
        yield
    except ScalingError as error:
        ours = error.file in (None, COMMAND_LINE)
        if ours and error.key and not any(_is_of(error.key, word.partition("=")[0]) for word in words):
            _place(error, error.key, _opened(source)[0], at)
        raise


def _place(error: ScalingError, key: str, config: Config, at: str | None) -> None:
    """Fill in the file, the line and the whole key of a run's key."""

    def rank(match: re.Match[str]) -> tuple[Any, ...]:
        """The key or the longest above it, else one below it; of equals the scale's, the one of the value, an axis."""
        run_key, written = _run_key(match), config[match[0]]
        is_value = error.has_value and str(error.value) in (str(written), str(_numbers(written)))
        return len(run_key) if _is_of(key, run_key) else 0, match[1] is not None, is_value, match[2] != "set"

    matches = [match for where in config.origin if (match := OF_A_RUN.fullmatch(where)) and match[1] in (None, at)]
    related = [match for match in matches if _is_of(key, own := _run_key(match)) or _is_of(own, key)]
    if related:
        best = max(related, key=rank)
        where, error.key = best[0], best[0][: best.start(3)] + key
    elif key in KEYS or error.file is not None:
        field = key if key in KEYS else "grid"
        where = scaled if at is not None and (scaled := f"at.{at}.{field}") in config.origin else field
    else:
        return
    place = config.error(where, error.what)
    error.file, error.line = place.file, place.line


def _run_key(match: re.Match[str]) -> str:
    """The key of a run that a key of the study sets: `size.width` of `grid.size.0.width`."""
    return match[3] if match[2] == "set" else re.sub(r"\.\d+(?=\.|$)", "", match[3], count=1)


def _is_of(key: str, above: str) -> bool:
    return key == above or key.startswith(f"{above}.")


def _layer(config: Config, above: str = "") -> dict[str, Any]:
    """The fields at the top of the file, or under the scale `above` (`at.paper`), each of its type; without those that
    are null.
    """
    tree, prefix = (config[above], f"{above}.") if above else (config.tree, "")
    if not isinstance(tree, dict):
        raise config.error(above, "expected fields of a study", f"write {above}: {{grid: …}}")
    fields = {}
    for key, value in tree.items():
        if key not in KEYS or (above and key == "at"):
            raise config.error(prefix + key, "a study has no such key", nearest(key, KEYS))
        if value is not None:
            try:
                fields[key] = _field(key, value)
            except ScalingError as error:
                raise error if error.file is not None else config.place(error.under(prefix + key)) from None
    return fields


def _field(key: str, value: Any) -> Any:
    """A field's value, of its type; `1B` is a number where one is expected. A mistake has the key below the field."""
    if key in MAPPINGS and not isinstance(value, Mapping):
        raise ScalingError("expected keys with values")
    match key:
        case "question" | "base":
            if not isinstance(value, str) or not value.strip():
                raise ScalingError("expected text")
            if key == "base":
                find("model", value)
        case "rate":
            schema.build("rate", value)
        case "tune":
            check(key, value, bool)
        case "law":
            from scaling.laws import named as law_named

            value = value if isinstance(value, list) else [value]
            for index, name in enumerate(value):
                if name in value[:index]:
                    raise ScalingError("a law is named twice", key=str(index))
                try:
                    law_named(str(name))
                except ScalingError as unknown:
                    where = str(index) if len(value) > 1 else None
                    raise ScalingError("there is no such law", key=where, fix=unknown.fix) from None
        case "target" | "suppose":
            kind = PositiveFloat if key == "target" else float
            value = check_keys(_numbers(value), dict.fromkeys(value, kind), key)
        case "define":
            from scaling.laws.points import SETUP

            check_keys(value, dict.fromkeys(SETUP, str | float), "the setup")
            value = {name: str(stated) for name, stated in value.items()}
        case "resources":
            value = check_keys(_numbers(value), RESOURCES, "a run's resources")
            if (gpus := value.get("gpus", 0)) > 1 and gpus != int(gpus):
                raise ScalingError("expected a fraction of one GPU, or a whole number", key="gpus", fix="take 0.5 or 2")
        case "minutes":
            value = _numbers(value)
            if not is_number(value) or value <= 0:
                raise ScalingError("expected a number above 0")
        case "tasks":
            value = _tasks(value)
        case "at":
            for name in value:
                if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
                    raise ScalingError(f"{name!r} is not a name of a scale", fix="take letters, digits, '_' and '-'")
    return value


def _tasks(value: Any) -> dict[str, dict[str, Any]]:
    """Each task with the keys of its runs."""
    from scaling.training.finetune import check_task

    tasks = dict.fromkeys(value) if isinstance(value, list) and all(isinstance(task, str) for task in value) else value
    if not isinstance(tasks, dict) or (isinstance(value, list) and len(tasks) < len(value)):
        raise ScalingError("expected names of tasks, each once", fix="write tasks: [cola, sst2]")
    for name, settings in tasks.items():
        if not isinstance(settings, dict | None):
            raise ScalingError("expected keys with values", key=name)
        try:
            check_task(name)
        except ScalingError as error:
            raise ScalingError(f"{name}: {error.what}", fix=error.fix) from None
    return {name: settings or {} for name, settings in tasks.items()}


def _scaled(config: Config, path: Path | None, layers: Mapping[str | None, Line], at: str | None) -> dict[str, Any]:
    """The fields of a study at one of its scales, which go together."""
    top, scale = layers[None], {} if at is None else layers[at]
    fields = {**top, **scale, "set": {**top.get("set", {}), **scale.get("set", {})}}

    def error(key: str, what: str, fix: str | None = None) -> ScalingError:
        """At the field in the scale, where that has it, or else at the top."""
        return config.error(f"at.{at}.{key}" if key.partition(".")[0] in scale else key, what, fix)

    for key, fix in NEEDED.items():
        if key not in fields:
            raise ScalingError("a study needs it", key=key, file=path, fix=fix)
    if "minutes" in fields and SMALL not in fields.get("at", {}):
        fix = f"add at: {{{SMALL}: {{grid: …}}}}"
        raise error("minutes", "there is no smaller scale to take on a slow machine", fix)
    if laws := fields.get("law"):
        _check_law(fields, laws, error)
    elif unused := [key for key in ("target", "suppose") if fields.get(key)]:
        raise error(unused[0], "the study asks for no law", "name one, as in law: chinchilla")
    for part in ("grid", "held_out"):
        where = f"at.{at}.{part}" if part in scale else part
        fields[part] = _checked(config, where, fields.get(part, {}), fields["base"])
    counts = {part: sum(_grid(line).most for line in _each(fields[part]) if line) for part in ("grid", "held_out")}
    if counts["grid"] == 0:
        raise config.error("grid", "the grid is empty", "write axes: size: [ladder/10k, ladder/30k]")
    if (runs := sum(counts.values())) > MOST_RUNS:
        raise config.error("grid", f"the grid has {runs:,} runs", f"{MOST_RUNS:,} are the most; thin an axis")
    return fields


def _check_law(fields: Line, laws: list[str], error: Callable[..., ScalingError]) -> None:
    from scaling.laws import named as law_named

    law = law_named(laws[0])
    target = fields.get("target", {})
    for name in target:
        if name not in law.inputs and set(target) != {"C"}:
            raise error(f"target.{name}", f"{law.name} is a law of {', '.join(law.inputs)}", nearest(name, law.inputs))
    if set(target) == {"C"} and law.inputs != ("C",):
        if set(law.inputs) != {"N", "D"}:
            raise error("target", f"{law.name} is a law of {', '.join(law.inputs)}", "name each of them")
    elif target and (absent := [name for name in law.inputs if name not in target]):
        raise error("target", f"{law.name} is a law of {', '.join(law.inputs)}", f"add {absent[0]}")
    parameters = {parameter.name: parameter for name in laws for parameter in law_named(name).parameters}
    for name, value in fields.get("suppose", {}).items():
        if name == "noise" or (name in parameters and parameters[name].scale == "log"):
            if not value > 0:
                raise error(f"suppose.{name}", "expected a number above 0")
        elif name not in parameters:
            fix = nearest(name, [*parameters, "noise"])
            raise error(f"suppose.{name}", f"{law.name} has no such parameter", fix)


def named(stem: str, at: str | None, words: Sequence[str]) -> str:
    """`quickstart data=python` is quickstart-data-python. Words that change no run are not part of the name."""
    counted = [word for word in words if is_counted(word.partition("=")[0])]
    parts = [stem, *([] if at is None else [at]), *counted]
    name = "-".join(re.sub(r"[^A-Za-z0-9._]+", "-", part).strip("-") for part in parts)
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME - 9]}-{hashlib.sha256(' '.join(parts).encode()).hexdigest()[:8]}"


def is_counted(key: str) -> bool:
    """Whether a key changes what a run computes."""
    return key not in UNCOUNTED and key.partition(".")[0] not in UNCOUNTED


def _checked(config: Config, where: str, lines: Any, base: str) -> Any:
    """A grid, or a list of them, its quantities as numbers and its rows spelled out."""
    if isinstance(lines, list):
        return [_checked(config, f"{where}.{index}", line, base) for index, line in enumerate(lines)]
    if not isinstance(lines, dict):
        raise config.error(where, "expected axes", f"write {where}: {{train.tokens: [1M, 2M]}}")
    if not lines:
        return lines
    if "kind" not in lines:
        return _axes(config, where, lines, base)
    line = {key: _numbers(value) for key, value in lines.items() if key != "axes"}
    if "axes" in lines:
        line["axes"] = _axes(config, f"{where}.axes", lines["axes"], base)
    try:
        schema.build("grid", line)
    except ScalingError as error:
        raise config.place(error.under(where)) from None
    return line


def _axes(config: Config, where: str, axes: Any, base: str) -> dict[str, Any]:
    if not isinstance(axes, dict) or not axes:
        raise config.error(where, "expected axes", "write axes: {size: [ladder/10k, ladder/30k]}")
    if axes.get("row") == "all":
        axes = {**axes, "row": list(table_file(base).rows)}
    for key, values in axes.items():
        if not isinstance(values, list) or not values:
            raise config.error(f"{where}.{key}", "expected a list of values", "write [1M, 2M]")
        if len({json.dumps(value) for value in values}) < len(values):
            raise config.error(f"{where}.{key}", "a value appears twice")
    return axes


def _numbers(value: Any) -> Any:
    """`1T`, and what holds the like, as numbers, which only where a run's config is resolved they are by themselves."""
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    if isinstance(value, dict):
        return {key: _numbers(item) for key, item in value.items()}
    number = quantity(value) if isinstance(value, str) else None
    return value if number is None else number


def _grid(line: Line) -> Grid:
    return schema.build("grid", line) if "kind" in line else Product(axes=dict(line))


def _each(lines: Line | Sequence[Line]) -> Sequence[Line]:
    return [lines] if isinstance(lines, Mapping) else lines


def flat(node: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Dotted keys: a node that names a kind stays whole, for it replaces; of any other, each key overlays."""
    flattened: dict[str, Any] = {}
    for key, value in node.items():
        if not isinstance(value, PLAIN) and isinstance(value, Mapping) and value and "kind" not in value:
            flattened |= flat(value, f"{above}{key}.")
        else:
            flattened[above + key] = value
    return flattened


def axes_of(lines: Line | Sequence[Line]) -> dict[str, Any]:
    """The axes of a grid, or of several; one of a kind may have none."""
    grids = (line.get("axes", {}) if "kind" in line else line for line in _each(lines))
    return {axis: values for grid in grids for axis, values in grid.items()}


def word_of(key: str, value: Any) -> str:
    """An override that our reader reads back; plain words stay plain, so that 4M is a number and tiny a name."""
    if isinstance(value, str):
        return f"{key}={json.dumps(value, ensure_ascii=False) if key == 'row' else value}"
    return f"{key}={json.dumps(_numbers(value))}"
