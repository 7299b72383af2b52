"""Plan: a question's grid as runs of the ledger, each with its point, entered once and extended by further runs."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from scaling.base.errors import ScalingError, plural, refuse
from scaling.config import schema
from scaling.config.compose import SECTIONS, load
from scaling.config.shape import SIZES
from scaling.ledger import Ledger, run_id
from scaling.ledger.document import differences
from scaling.ledger.identity import assignments
from scaling.studies.grid import Cell
from scaling.studies.question import COMPARED, Line, Question, axes_of, flat, is_automatic
from scaling.training.finetune import compose
from scaling.training.point import canonical, point
from scaling.training.schedule import VARIED

if TYPE_CHECKING:  # it imports torch, which a plan that is read from the ledger does without
    from scaling.training.experiment import Experiment

Data = Literal["prepared", "stand_in"]
Words = tuple[str, ...]

KEPT = 64  # experiments of a plan from the ledger that are held at a time
SOME = 3  # runs named in one line
STORED = ("run", "name", "overrides", "held_out", "steps", "flops", "point")  # of a run in the ledger's plan
OF_A_TASK = ("start", "task", "labels")


class Branch(NamedTuple):
    """The beginning of a run: a step of a trunk, which `flops` lead to."""

    run: str
    step: int
    flops: float


@dataclass(frozen=True)
class Run:
    """What a worker trains: a run of a study, the finetuning of a run where there is a `task`, or a trunk.

    `flops` are its own, without those of its trunk. `point` is what it contributes to a table besides its loss. A
    finetuning starts from the weights of the run `start`; `labels` are the classes of its answers. `root` is the folder
    of the ledger.
    """

    run: str
    name: str
    base: str
    overrides: Words
    held_out: bool
    steps: int
    flops: float
    root: str
    point: Mapping[str, Any] = field(hash=False, default_factory=dict)
    trunk: Branch | None = None
    start: str | None = None
    task: str | None = None
    labels: int | None = None
    is_trunk: bool = False
    planned: Experiment | None = field(default=None, repr=False, compare=False)

    @property
    def experiment(self) -> Experiment:
        return _assembled(self) if self.planned is None else self.planned

    @property
    def row(self) -> str | None:
        """The row of a table that the run is of, where the study compares rows."""
        word = next((word[4:] for word in self.overrides if word.startswith("row=")), None)
        return json.loads(word) if word is not None and word.startswith('"') else word

    def as_trunk(self, trunk: Branch) -> Run:
        """The trunk of this run, as far as this run needs it."""
        changes: dict[str, Any] = {"run": trunk.run, "name": f"trunk of {self.name}", "held_out": False, "point": {}}
        changes |= {"steps": trunk.step, "flops": trunk.flops, "trunk": None, "is_trunk": True}
        return replace(self, **changes, planned=None if self.planned is None else _trunk_of(self.planned))


@lru_cache(maxsize=KEPT)
def _assembled(run: Run) -> Experiment:
    from scaling.training.experiment import assemble

    if run.task is None:
        config = load(run.base, (*run.overrides, f"runs={run.root}"))
    else:
        config = compose(str(run.start), run.task, run.overrides, runs=run.root)
    experiment = assemble(config)
    experiment = _trunk_of(experiment) if run.is_trunk else experiment
    what = "this is not the run that was planned: its data, its files or the overrides differ"
    refuse(run_id(experiment.spec) != run.run, what, "give the changed study another name", key="run", value=run.run)
    return experiment


def _trunk_of(experiment: Experiment) -> Experiment:
    trunk = experiment.trunk()
    assert trunk is not None
    return trunk[0]


@dataclass(frozen=True)
class Plan:
    """`command` is what follows `scaling` on the command line that made the plan; empty where it was not made so."""

    question: Question
    runs: tuple[Run, ...]
    command: Words = ()

    @cached_property
    def trunks(self) -> dict[str, Run]:
        """The trunks that its runs share, by their ids, each as far as its last branch needs it."""
        last: dict[str, tuple[Run, Branch]] = {}
        for run in self.runs:
            if run.trunk is not None and (run.trunk.run not in last or run.trunk.step > last[run.trunk.run][1].step):
                last[run.trunk.run] = run, run.trunk
        return {name: run.as_trunk(trunk) for name, (run, trunk) in last.items()}

    @property
    def fitted(self) -> list[Mapping[str, Any]]:
        """The points of the runs that the law is fitted to."""
        return [run.point for run in self.runs if not run.held_out]

    def ledger(self) -> Ledger:
        """The ledger that its runs belong to, made where there is none."""
        return Ledger.create(self.runs[0].root)


def plan(question: Question, overrides: Sequence[str] = (), data: Data = "prepared") -> Plan:
    """Every run of a question, checked; `overrides` hold for all of them.

    Where data are not prepared, what their runs cost can still be counted: a language replaces each of them.
    """
    with question.placing(overrides):
        runs = _runs(question, _wording(question, overrides, data))
        _check(question, runs)
    if not question.source:
        return Plan(question, runs)
    # The command that makes the plan again. Where the ledger lies is not part of it, nor is the folder of a file.
    scale = [] if question.at is None else ["--at", question.at]
    words = [word for word in overrides if not word.startswith("runs=")]
    extensions = [word for path in schema.extensions() for word in ("--extend", Path(path).name)]
    return Plan(question, runs, ("study", question.source, *scale, *words, *extensions))


def _wording(question: Question, overrides: Sequence[str], data: Data) -> Callable[[Cell], Words]:
    """The words of a run by its own keys."""
    automatic: dict[Any, bool] = {}  # by what names files, whether these leave the windows of evaluations open

    def words_of(cell: Cell) -> Words:
        row = cell.get("row")
        labels = [f"study={question.name}", *([] if row is None else [f"row={row}"])]
        shown, tags = (json.dumps(each, ensure_ascii=False) for each in (_name(cell), labels))
        log = (f"log.group={question.name}", f"log.name={shown}", f"log.tags={tags}")
        words = (*log, *question.overrides(cell), *overrides)
        words = words if data == "prepared" else _stood_in(question.base, words)
        files = tuple((key, cell[key]) for key in ("row", *SECTIONS) if isinstance(cell.get(key), str))
        if files not in automatic:
            automatic[files] = is_automatic(load(question.base, words))
        return (COMPARED, *words) if automatic[files] else words

    return words_of


def _stood_in(base: str, words: Words) -> Words:
    """The words with a synthetic language in the place of the data, another one for other data. Its vocabulary is the
    one that the data's tokenizer learns, where the config states it.
    """
    config, data = load(base, words), [word for word in words if word.startswith(("data=", "data."))]
    tokenizer, multiple = config.tree["data"].get("tokenizer"), config["train.round_vocabulary"]
    count = tokenizer.get("vocabulary") if isinstance(tokenizer, Mapping) else None
    size = [f"size.vocabulary={-(-count // multiple) * multiple}"] if count and not config["size.vocabulary"] else []
    others = (word for word in words if word not in data)
    drawn = ["start=null"] if (config.tree.get("start") or {}).get("vectors") else []  # a language has no words
    return (*others, "data=synthetic", f"data.seed={zlib.crc32(' '.join(data).encode())}", *size, *drawn)


def _runs(question: Question, words_of: Callable[[Cell], Words]) -> tuple[Run, ...]:
    cells = _cells(question, words_of)
    is_empty, fix = all(held_out for _, held_out, _ in cells), "widen its bounds, or give it other budgets"
    refuse(is_empty, "no run of the grid is within its bounds", fix, key="grid")
    words = [words_of(cell) for cell, _, _ in cells]
    experiments = _experiments(question.base, words)
    trunks: dict[Any, str] = {}
    branches = [_branch(experiment, trunks) for experiment in experiments]
    shared, runs = Counter(branch.run for branch in branches if branch), []
    for (cell, held_out, rung), line, experiment, branch in zip(cells, words, experiments, branches, strict=True):
        # A trunk with one branch saves nothing: that run trains its own stable phase.
        trunk = branch if branch and shared[branch.run] > 1 else None
        runs.append(
            Run(
                run=run_id(experiment.spec),
                name=_name(cell),
                base=question.base,
                overrides=line,
                held_out=held_out,
                steps=experiment.steps,
                trunk=trunk,
                flops=_flops(experiment, experiment.steps, 0 if trunk is None else trunk.step),
                root=str(Path(experiment.config["runs"])),
                point=point(experiment) | ({"beside": rung} if question.tune else {}),
                planned=experiment,
            )
        )
    return tuple(runs)


def _branch(experiment: Experiment, trunks: dict[Any, str]) -> Branch | None:
    """The trunk that a run may branch from, and the step; `trunks` are the ids of those that are known."""
    trunk = experiment.trunk()
    if trunk is None or not trunk[1]:
        return None
    # Runs of a family have one optimizer. A warmup that is a fraction of the run has another number of steps for each.
    key = id(experiment.optimizer), experiment.seed, trunk[0].schedule.warmup
    if key not in trunks:
        trunks[key] = run_id(trunk[0].spec)
    return Branch(trunks[key], trunk[1], _flops(experiment, trunk[1]))


def _flops(experiment: Experiment, last: int, first: int = 0) -> float:
    """The FLOPs between two steps."""
    return (experiment.tokens(last) - experiment.tokens(first)) * experiment.cost.flops_train_per_token


def _name(cell: Cell) -> str:
    """A run among its study's: `width=16 heads=1 tokens=500k`, `GeLU seed=0`."""
    return " ".join(assignments(flat(cell)))


def _cells(question: Question, words_of: Callable[[Cell], Words]) -> list[tuple[Cell, bool, str]]:
    """Each run's own keys with its budget and its learning rate worked out, whether it is held out from the law, and
    the name of the run beside which it is trained to see whether that is tuned.
    """
    from scaling.training.experiment import assemble

    @cache
    def model(words: Words) -> Experiment:
        return assemble(load(question.base, words))

    def probe(cell: Cell) -> Experiment:
        """A run of the cell's model; its budget is any."""
        shape_keys = {key: value for key, value in cell.items() if key not in VARIED}
        return model((*words_of(shape_keys), f"trainer.max_steps={10**12}", "train.epochs=null"))

    rate = None if question.rate is None else schema.build("rate", question.rate)
    cells: list[tuple[Cell, bool, str]] = []
    for cell, held_out in question.cells(lambda cell: probe(cell).cost):
        keys = {} if rate is None else rate.keys(model(words_of(cell)))
        # Four digits: a person can type them, and any machine's logarithm gives this run.
        digits = {key: value if isinstance(value, int) else float(f"{value:.4g}") for key, value in keys.items()}
        cells.append(({**digits, **cell}, held_out, ""))
    rungs: dict[str, Cell] = {}  # the first seed of each
    for cell, held_out, _ in cells if question.tune else ():
        if not held_out:
            rungs.setdefault(_name({**cell, "seed": 0}), cell)
    beside = [({**cell, key: value}, _name(cell)) for cell in rungs.values() for key, value in _beside(probe(cell))]
    return cells + [(cell, True, rung) for cell, rung in beside]


def _beside(experiment: Experiment) -> Iterator[tuple[str, float]]:
    """Half and twice the learning rate, and the batch, of a run."""
    for factor in (0.5, 2.0):
        yield "optimizer.lr", float(f"{factor * experiment.optimizer.lr:.4g}")
        rows = experiment.config["train.batch"]
        if isinstance(rows, int) and rows % 2 == 0:
            yield "train.batch", int(factor * rows)


def _experiments(base: str, words: Sequence[Words]) -> list[Experiment]:
    """`assemble(load(base, words))` of each run's words, in their order.

    Runs that differ in seed and budget alone are a family, whose model is built once.
    """
    from scaling.training.experiment import assemble, varied

    families: dict[Words, list[Words]] = {}
    for line in words:
        common = tuple(f"{key}=" if (key := word.partition("=")[0]) in VARIED else word for word in line)
        families.setdefault(common, []).append(line)
    experiments: dict[Words, Experiment] = {}
    for members in families.values():
        first = assemble(load(base, members[0]))
        values = [{key: word for word in line if (key := word.partition("=")[0]) in VARIED} for line in members]
        # A key that others refer to (${train.tokens}), or that a later word takes back, is found by trying, for each
        # key, the first run that gives it another value than the first run of all does. So are word vectors, among
        # which a seed draws those of further words.
        differing = ([place for place, value in enumerate(values) if value[key] != values[0][key]] for key in values[0])
        pairs = (
            (varied(first, values[place].values()), assemble(load(base, members[place])))
            for place in {places[0] for places in differing if places}
        )
        alike = all((one.config.tree, one.start) == (whole.config.tree, whole.start) for one, whole in pairs)
        for line, value in zip(members, values, strict=True):
            experiments[line] = varied(first, value.values()) if alike else assemble(load(base, line))
    return [experiments[line] for line in words]


def _check(question: Question, runs: Sequence[Run]) -> None:
    """Refuse two cells that are one run, and a law that has as many parameters as the runs that are left to fit it have
    different points.
    """
    first: dict[str, Run] = {}
    fix = "an axis does not change what is computed, or the held-out runs are in the grid"
    for run in runs:
        other = first.setdefault(run.run, run)
        refuse(other is not run, f"two cells are one run: {other.name!r} and {run.name!r}", fix, key="grid")
    if question.law is None:
        return
    from scaling.laws import named
    from scaling.studies.identifiability import smallest_grid, spelled

    law = named(question.law)
    names = dict.fromkeys(("N_total", "S", *law.inputs))
    points = {(run.row, *map(run.point.get, names)) for run in runs if not run.held_out}
    what = f"{plural(len(points), 'different point')} to fit {len(law.parameter_names)} parameters"
    fix = "add sizes or budgets, hold out less, or ask for a law with fewer parameters; "
    fix += f"the smallest grid that identifies this one is {spelled(smallest_grid(law))}"
    refuse(len(points) <= len(law.parameter_names), what, fix, key="grid")


# The plan in the ledger


def enter(ledger: Ledger, plan: Plan) -> list[str]:
    """Write the plan and its runs into the ledger; the names of the runs by which it extends the plan of its name.

    A plan that asks another question under the same name is refused, and what differs is stated.
    """
    name, document = plan.question.name, document_of(plan)
    earlier, added, path = None, list[str](), ledger.plan_file(name)
    if name in ledger.studies():
        earlier = ledger.plan(name)
        added = _additions(earlier, document, path)
    for run in (*plan.runs, *plan.trunks.values()):
        if run.planned is not None:  # others were entered before
            ledger.add(run.planned.spec)
    if earlier is None or added or differences(earlier["study"], document["study"]):
        ledger.save_plan(name, document, None if earlier is None else path)
    return added


def entered(ledger: Ledger, name: str, words: Sequence[str] = ()) -> Plan:
    """The plan that was entered under a name; `words` are further overrides, which may not change what is computed."""
    document = ledger.plan(name)
    try:
        question = Question(**document["study"])
        runs = [
            Run(
                **{
                    **entry,
                    "base": question.base,
                    "overrides": (*entry["overrides"], *words),
                    "point": canonical(entry["point"]),
                    "trunk": entry["trunk"] and Branch(**entry["trunk"]),
                    "root": str(ledger.root),
                }
            )
            for entry in document["runs"]
        ]
        return Plan(question, tuple(runs), tuple(document["command"]))
    except (KeyError, TypeError, AttributeError) as error:
        what = f"the plan is damaged, or of another version: {type(error).__name__} {error}"
        raise ScalingError(what, file=ledger.plan_file(name), fix="plan again") from None


def newest(ledger: Ledger, plan: Plan) -> Plan:
    """The plan, or the one that the ledger has in its place since another command extended the study."""
    name = plan.question.name
    same = ledger.runs_of(name) == [run.run for run in plan.runs]
    return plan if same else entered(ledger, name)


def document_of(plan: Plan) -> dict[str, Any]:
    """A plan as the ledger has it."""
    runs = [
        {key: getattr(run, key) for key in (*STORED, *(() if run.task is None else OF_A_TASK))}
        | {"overrides": list(run.overrides), "trunk": run.trunk and run.trunk._asdict()}
        for run in plan.runs
    ]
    return {"study": plan.question.stored, "command": list(plan.command), "runs": runs}


def _additions(earlier: Line, document: Line, path: Path) -> list[str]:
    """The names of the runs by which a plan extends an earlier one; refused where it asks another question.

    An extension has every planned run, as it was planned, and the same law and target. Its axes are those of the study,
    or go over sizes, budgets and seeds.
    """
    changed = differences(earlier["study"], document["study"])

    def changes(*fields: str) -> list[str]:
        values = {key: pair for key, pair in changed.items() if key.partition(".")[0] in fields}
        return [f"{key} was {before!r} and is {after!r}" for key, (before, after) in values.items()]

    then, now = ({(run["run"], run["held_out"]): run["name"] for run in each["runs"]} for each in (earlier, document))
    new, gone = ([name for run, name in a.items() if run not in b] for a, b in ((now, then), (then, now)))
    sizes = {"size", *(f"size.{key}" for key in SIZES if key not in ("vocabulary", "length"))}
    axes = _varied_keys(document["study"]) - _varied_keys(earlier["study"]) - sizes - {*VARIED}
    reasons = [*changes("laws", "target"), *(f"the axis {axis} is new to the study" for axis in sorted(axes))]
    if not gone and not reasons:
        return new
    counted = [
        f"{plural(len(names), 'run')} {'is' if len(names) == 1 else 'are'} {what} "
        f"({', '.join(names[:SOME])}{', …' if len(names) > SOME else ''})"
        for what, names in (("new", new), ("gone", gone))
        if names
    ]
    raise ScalingError(
        f"the study {document['study']['name']} has another plan: {'; '.join([*counted, *reasons, *changes('set')])}",
        fix="keep the planned runs and add sizes, budgets or seeds to extend it; or give the changed study another "
        "name (runs that both have are shared)",
        file=path,
    )


def _varied_keys(study: Line) -> set[str]:
    """The keys of a run's config that the axes of a study set."""
    axes = [axis for part in ("grid", "held_out") for axis in axes_of(study[part]).items()]
    return {key for axis, values in axes for value in values for key in flat({axis: value})}
