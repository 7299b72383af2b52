"""Question: a study's YAML, with its question, the runs that answer it, and the held-out runs that test it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from scaling.base import json_lines
from scaling.base.errors import ScalingError, nearest, refuse, under
from scaling.base.json_lines import mapped
from scaling.base.numbers import Fraction, PositiveFloat, PositiveInt, is_number
from scaling.config import schema
from scaling.config.compose import table_file
from scaling.config.document import Config, document, of_values
from scaling.config.files import find, shipped
from scaling.config.schema import check_keys
from scaling.config.strict_yaml import COMMAND_LINE, quantity
from scaling.ledger.identity import UNCOUNTED
from scaling.studies.grid import Cell, Grid, Price, Product

if TYPE_CHECKING:
    from scaling.laws import Law

Line = Mapping[str, Any]
Source = str | Path | Line
"""A study: the name of a shipped one, a path, or its fields with a `name`."""

KEYS: dict[str, Any] = {
    "question": Annotated[str, "one sentence, the heading of the report"],
    "base": Annotated[str, "the start of every run: a model, a table or a file"],
    "set": Annotated[Line, "keys of a config that hold for every run, such as {train.batch: 16}"],
    "grid": Annotated[
        Line | list[Line],
        "axes; their product gives the fitted runs: {size: [10k, 30k], train.tokens: [1M, 2M]}; or a list of grids",
    ],
    "held_out": Annotated[Line | list[Line], "axes of the runs that test the fit and are not fitted"],
    "tune": Annotated[
        bool, "true: each run is also trained at half and at twice its learning rate and batch, to check its tuning"
    ],
    "rate": Annotated[schema.Recipe, "a rule for the learning rate of each run: `scaling explain rate`"],
    "law": Annotated[
        str | list[str], "the law to fit, or a list of laws (the first one answers): `scaling explain law`"
    ],
    "target": Annotated[
        Line, "the target of the prediction, such as {N: 1B, D: 20B} (default: the most expensive held-out run)"
    ],
    "suppose": Annotated[
        Line, "the law's parameters and the noise of log loss that a plan assumes, such as {E: 1.9, noise: 0.003}"
    ],
    "define": Annotated[Line, "the setup of the runs and its reasons in your words, for the report"],
    "tasks": Annotated[
        list[str] | Mapping[str, Line | None],
        "tasks for finetuning each run: [cola, sst2], or with keys of these runs: {cola: {train.epochs: 5}}",
    ],
    "resources": Annotated[
        Line, "the resources of each run (default: by its cost), such as {threads: 2, gpus: 0.5, memory: 8}"
    ],
    "minutes": Annotated[
        PositiveInt | PositiveFloat, "the longest time of the study; a machine that needs more uses the scale `small`"
    ],
    "at": Annotated[Mapping[str, Line], "further scales of the study by name, each with the fields that differ"],
}
"""The fields of a study's file: the type and the meaning of each."""
# The fields that a study needs, each with an example.
NEEDED = {
    "question": "write question: How does loss fall with size?",
    "base": "write base: decoder",
    "grid": "write grid: {size: [10k, 30k, 100k], train.tokens: [1M, 2M, 4M]}",
}
RESOURCES: dict[str, Any] = {
    "threads": PositiveInt,
    "gpus": Fraction | PositiveInt,
    "memory": PositiveFloat,  # in GB
    "minutes": PositiveFloat,  # until a cluster may end it
}
NUMBERS = ("target", "suppose", "resources", "minutes")  # fields in which `1B` is a number
SMALL = "small"  # the scale that a study takes on a machine that would need longer than its `minutes`

MOST_RUNS = 100_000
LONGEST_NAME = 100
BUDGETS = ("train.tokens", "trainer.max_steps", "train.epochs")
# The word that a plan adds to its runs, which are compared: the last evaluation is of all windows, whatever a tenth of
# a run's own compute pays for.
COMPARED = "evaluate.windows=whole_at_end"

OF_A_RUN = re.compile(r"(?:at\.([\w-]+)\.)?(?:set|(?:grid|held_out)(?:\.\d+)?(?:\.axes)?)\.(.+)")
"""Where a study has keys of its runs: the scale, and the key, in which a number follows an axis."""


@dataclass(frozen=True)
class Question:
    """`set` holds for every run; `grid` and `held_out` are grids, or lists of them: axes, or a kind with its keys.

    An axis `row` goes over rows of the table that `base` names; `all` are all of them. `rate` is a rule for the runs'
    learning rates. The first of several laws answers; a comparison of rows needs none. `suppose` is the law (and the
    `noise` of log loss) that a plan assumes; `at` is the chosen scale, if a study has several; each run is finetuned on
    `tasks`, with the keys of these runs; `resources` are the resources of each run; if the study would take longer than
    `minutes`, its scale `small` is used. `source` is its name or its file, as a command names it; `config` is the
    document that it was read from, which no ledger has.
    """

    name: str
    question: str
    base: str
    set: Line
    grid: Line | Sequence[Line]
    laws: Sequence[str] = ()
    held_out: Line | Sequence[Line] = field(default_factory=dict)
    tune: bool = False
    rate: str | Line | None = None
    target: Mapping[str, float] = field(default_factory=dict)
    suppose: Mapping[str, float] = field(default_factory=dict)
    define: Mapping[str, str] = field(default_factory=dict)
    tasks: Mapping[str, Line] = field(default_factory=dict)
    resources: Mapping[str, float] = field(default_factory=dict)
    minutes: float | None = None
    at: str | None = None
    source: str = ""
    config: Config | None = field(default=None, repr=False, compare=False)

    @property
    def stored(self) -> dict[str, Any]:
        """Its fields as the ledger has them."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "config"}

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
        largest, most = dict[str, Any](), 0.0
        for cell in (cell for grid in grids(self.grid) for cell in grid.cells(price)):
            for key in BUDGETS:
                if is_number(number := _numbers(cell.get(key))) and number > most:
                    largest, most = {key: cell[key]}, number
            yield cell, False
        for cell in (cell for grid in grids(self.held_out) for cell in grid.cells(price)):
            has_budget = any(key in cell or key in self._common for key in BUDGETS)
            yield cell if has_budget else {**cell, **largest}, True

    def overrides(self, cell: Cell) -> tuple[str, ...]:
        """A run's keys as words of the command line."""
        words = flat(cell)
        common = (word for key, word in self._common.items() if key not in words)
        return (*common, *(word_of(key, value) for key, value in words.items()))

    @cached_property
    def _common(self) -> dict[str, str]:
        return {key: word_of(key, value) for key, value in flat(self.set).items()}

    @contextmanager
    def placing(self, words: Sequence[str]) -> Iterator[None]:
        """Report a mistake in a key of the runs at the line of the study that has the key; one in `words` as it is."""
        try:
            yield
        except ScalingError as error:
            is_ours = error.file in (None, COMMAND_LINE)
            is_ours &= not any(_is_of(str(error.key), word.partition("=")[0]) for word in words)
            if self.config is not None and error.key is not None and is_ours:
                self._place(error, error.key, self.config)
            raise

    def _place(self, error: ScalingError, key: str, config: Config) -> None:
        """Fill in the file, the line and the whole key of a run's key."""
        matches = [match for where in config.origin if (match := OF_A_RUN.fullmatch(where))]
        own = {
            match: re.sub(r"\.\d+(?=\.|$)", "", match[2], count=1) for match in matches if match[1] in (None, self.at)
        }
        related = [match for match in own if _is_of(key, own[match]) or _is_of(own[match], key)]

        def rank(match: re.Match[str]) -> tuple[int, bool]:
            """The key or the longest above it, else one below it; of equals the one of the value."""
            written = config[match[0]]
            is_value = str(error.value) in (str(written), str(_numbers(written)))
            return len(own[match]) if _is_of(key, own[match]) else 0, is_value

        if related:  # of equals in all this the last in the file: axes are below `set`, and scales below both
            best = max(reversed(related), key=rank)
            where, error.key = best[0], best[0][: best.start(2)] + key
        else:  # a field of the study, or a key that its grid works out
            key = key if error.file is None else f"grid.{key}"
            is_of_scale = f"at.{self.at}.{key.partition('.')[0]}" in config.origin
            where = error.key = f"at.{self.at}.{key}" if is_of_scale else key
        place = config.error(where, error.what)
        error.file, error.line = place.file, place.line


def read(source: Source, at: str | None = None, words: Sequence[str] = ()) -> Question:
    """A study at one of its scales.

    Scale and `words`, which hold for every run, make it another study, so its name contains them.
    """
    config, stem, path = _opened(source)
    is_shipped = path is not None and path.parent == shipped() / "study"
    file = stem if is_shipped else f"{stem}.yaml" if path is None else path.name
    with config.placing():
        top, checked = _typed(config.tree), {}
        scales = {None: {}, **top.pop("at", {})}
        fix = nearest(str(at), filter(None, scales))
        refuse(at not in scales, "the study has no such scale", fix, key="at", value=at)
        # Each scale is checked, so that a mistake in one shows before another is trained.
        for scale, tree in scales.items():
            with under(f"at.{scale}"):
                layer = _typed(tree, is_scale=True)
            fields = {**top, **layer, "set": {**top.get("set", {}), **layer.get("set", {})}}
            try:
                checked[scale] = _checked(fields, SMALL in scales)
            except ScalingError as error:
                raise error.under(f"at.{scale}") if str(error.key).partition(".")[0] in layer else error from None
    return Question(**checked[at], name=named(stem, at, words), at=at, source=file, config=config)


def _opened(source: Source) -> tuple[Config, str, Path | None]:
    """The document of a study, its name, and its file."""
    if not isinstance(source, Mapping):
        path = find("study", str(source))
        return document(path), path.stem, path
    config = of_values("the study", {key: source[key] for key in source if key != "name"})
    for key in config.origin:
        is_plain = isinstance(config[key], dict | list | str | int | float | None)
        config.refuse(not is_plain, key, "expected text, a number, true, false or null")
    return config, str(source.get("name", "study")), None


def _typed(tree: Line, *, is_scale: bool = False) -> dict[str, Any]:
    """The fields of a study, or of one of its scales, each of its type, without those that are null."""
    stated = {key: value for key, value in tree.items() if value is not None}
    stated |= {key: _numbers(stated[key]) for key in NUMBERS if key in stated}
    types = {key: kind for key, kind in KEYS.items() if not (is_scale and key == "at")}
    return check_keys(stated, types, "a study", needed={} if is_scale else NEEDED)


def _checked(fields: Line, has_small: bool) -> dict[str, Any]:
    """The fields of a study at one of its scales, which go together."""
    from scaling.laws import named as law_named
    from scaling.laws.points import SETUP

    with under("base"):
        find("model", fields["base"])
    what, fix = "there is no smaller scale to take on a slow machine", f"add at: {{{SMALL}: {{grid: …}}}}"
    refuse("minutes" in fields and not has_small, what, fix, key="minutes")
    names = [fields["law"]] if isinstance(fields.get("law"), str) else fields.get("law", [])
    refuse(len({*names}) < len(names), "a law is named twice", key="law")
    with under("law"):
        laws = list(map(law_named, names))
    with under("define"):
        define = check_keys(fields.get("define", {}), dict.fromkeys(SETUP, str | float), "the setup")
    with under("resources"):
        resources = check_keys(fields.get("resources", {}), RESOURCES, "a run's resources")
    checked = {key: value for key, value in fields.items() if key != "law"} | {
        "laws": names,
        **_supposed(laws, fields.get("target", {}), fields.get("suppose", {})),
        "define": {name: str(stated) for name, stated in define.items()},
        "resources": resources,
        "tasks": _tasks(fields.get("tasks", {})),
        "rate": fields["rate"].line if "rate" in fields else None,
        **{part: _grids(part, fields.get(part, {}), fields["base"]) for part in ("grid", "held_out")},
    }
    fitted, held_out = (sum(grid.most for grid in grids(checked[part])) for part in ("grid", "held_out"))
    refuse(fitted == 0, "the grid is empty", "write axes: size: [ladder/10k, ladder/30k]", key="grid")
    what, fix = f"the grid has {fitted + held_out:,} runs", f"{MOST_RUNS:,} are the most; thin an axis"
    refuse(fitted + held_out > MOST_RUNS, what, fix, key="grid")
    return checked


def _supposed(laws: Sequence[Law], target: Line, suppose: Line) -> dict[str, Any]:
    """The target of the prediction, and the law that a plan assumes, which are of the study's laws."""
    if not laws:
        for key, value in {"target": target, "suppose": suppose}.items():
            refuse(value, "the study asks for no law", "name one, as in law: chinchilla", key=key)
        return {}
    law = laws[0]
    # A law of N and D has a best split of a compute.
    inputs = ("C",) if set(target) == {"C"} and set(law.inputs) == {"N", "D"} else law.inputs
    absent = [name for name in inputs if target and name not in target]
    parameters = {parameter.name: parameter for each in laws for parameter in each.parameters}
    numbers = {name: PositiveFloat if each.scale == "log" else float for name, each in parameters.items()}
    with under("target"):
        target = check_keys(target, dict.fromkeys(inputs, PositiveFloat), law.name)
        refuse(absent, f"{law.name} is a law of {', '.join(law.inputs)}", f"add {', '.join(absent)}")
    with under("suppose"):
        return {"target": target, "suppose": check_keys(suppose, {**numbers, "noise": PositiveFloat}, law.name)}


def _tasks(value: Sequence[str] | Mapping[str, Line | None]) -> dict[str, Line]:
    """Each task with the keys of its runs."""
    tasks = value if isinstance(value, Mapping) else dict.fromkeys(value)
    for name in tasks:
        from scaling.training.finetune import check_task

        try:
            check_task(name)
        except ScalingError as error:
            raise ScalingError(f"{name}: {error.what}", key="tasks", fix=error.fix) from None
    return {name: settings or {} for name, settings in tasks.items()}


def _grids(where: str, lines: Any, base: str) -> Any:
    """A grid, or a list of them, its quantities as numbers and its rows spelled out."""
    if isinstance(lines, list):
        return [_grids(f"{where}.{index}", line, base) for index, line in enumerate(lines)]
    if "kind" not in lines:
        return _axes(where, lines, base) if lines else {}
    line = {
        key: _axes(f"{where}.axes", value, base) if key == "axes" else _numbers(value) for key, value in lines.items()
    }
    with under(where):
        schema.build("grid", line)
    return line


def _axes(where: str, axes: Any, base: str) -> dict[str, Any]:
    is_empty, fix = not isinstance(axes, Mapping) or not axes, "write axes: {size: [ladder/10k, ladder/30k]}"
    refuse(is_empty, "expected axes", fix, key=where)
    axes = {**axes, "row": list(table_file(base).rows)} if axes.get("row") == "all" else axes
    for key, values in axes.items():
        is_list = isinstance(values, list) and values
        refuse(not is_list, "expected a list of values", "write [1M, 2M]", key=f"{where}.{key}")
    return axes


def grids(lines: Line | Sequence[Line]) -> list[Grid]:
    """The grids of a line, or of a list of lines; a line without a kind has axes."""
    each = [lines] if isinstance(lines, Mapping) else lines
    return [schema.build("grid", line) if "kind" in line else Product(axes=dict(line)) for line in each if line]


def axes_of(lines: Line | Sequence[Line]) -> dict[str, list[Any]]:
    """The values of each axis of a grid, or of several; one of a kind may have no axes."""
    axes: dict[str, list[Any]] = {}
    for line in [lines] if isinstance(lines, Mapping) else lines:
        for axis, values in (line.get("axes", {}) if "kind" in line else line).items():
            axes[axis] = [*axes.get(axis, []), *values]
    return axes


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


def is_automatic(config: Config) -> bool:
    """Whether neither the words nor the files of a config set the windows of its evaluations: `COMPARED` then does."""
    return config["evaluate.windows"] == "auto" and config.origin.get("evaluate.windows") != COMMAND_LINE


def flat(node: Line) -> dict[str, Any]:
    """Dotted keys: a node that names a kind stays whole, for it replaces; of any other, each key overlays."""
    return json_lines.flat(node, lambda inner: not inner or "kind" in inner)


def word_of(key: str, value: Any) -> str:
    """An override that our reader reads back; plain words stay plain, so that 4M is a number and tiny a name."""
    if isinstance(value, str):
        return f"{key}={json.dumps(value, ensure_ascii=False) if key == 'row' else value}"
    return f"{key}={json.dumps(_numbers(value))}"


def _numbers(value: Any) -> Any:
    """Text such as `1T`, in lists and mappings too, as numbers."""

    def number(leaf: Any) -> Any:
        quantities = quantity(leaf) if isinstance(leaf, str) else None
        return leaf if quantities is None else quantities

    return mapped(value, number)


def _is_of(key: str, above: str) -> bool:
    return key == above or key.startswith(f"{above}.")
