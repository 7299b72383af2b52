"""Plan: a question's grid as runs of the ledger, each with its point, entered once and extended by further runs."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from scaling.base.errors import ScalingError, plural, refuse
from scaling.config import schema
from scaling.config.compose import load
from scaling.config.shape import SIZES
from scaling.ledger import Ledger, run_id
from scaling.ledger.document import differences
from scaling.ledger.identity import assignments
from scaling.studies.grid import Cell
from scaling.studies.question import COMPARED, Question, axes_of, compared, flat, is_counted
from scaling.training.finetune import compose
from scaling.training.point import canonical, point
from scaling.training.schedule import VARIED

if TYPE_CHECKING:  # it imports torch, which a plan that is read from the ledger does without
    from scaling.training.experiment import Experiment

Data = Literal["prepared", "stand_in"]
Words = tuple[str, ...]
Line = Mapping[str, Any]

KEPT = 64  # experiments of a plan from the ledger that are held at a time
SOME = 3  # differences reported in one line
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


@lru_cache(maxsize=KEPT)
def _assembled(run: Run) -> Experiment:
    from scaling.training.experiment import assemble

    if run.task is None:
        config = load(run.base, compared(run.base, (*run.overrides, f"runs={run.root}")))
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
        last: dict[str, tuple[int, Run]] = {}
        for run in self.runs:
            if run.trunk is not None and run.trunk.step > last.get(run.trunk.run, (-1,))[0]:
                last[run.trunk.run] = run.trunk.step, run
        return {name: _trunk(name, step, run) for name, (step, run) in last.items()}

    @property
    def fitted(self) -> list[Mapping[str, Any]]:
        """The points of the runs that the law is fitted to."""
        return [run.point for run in self.runs if not run.held_out]

    def ledger(self) -> Ledger:
        """The ledger that its runs belong to, made where there is none."""
        return Ledger.create(self.runs[0].root)


def _trunk(name: str, step: int, last: Run) -> Run:
    assert last.trunk is not None
    return Run(
        run=name,
        name=f"trunk of {last.name}",
        base=last.base,
        overrides=last.overrides,
        held_out=False,
        steps=step,
        flops=last.trunk.flops,
        root=last.root,
        is_trunk=True,
        planned=None if last.planned is None else _trunk_of(last.planned),
    )


def plan(question: Question, overrides: Sequence[str] = (), data: Data = "prepared") -> Plan:
    """Every run of a question, checked; `overrides` hold for all of them.

    Where data are not prepared, what their runs cost can still be counted: a language replaces each of them.
    """
    windows: dict[Any, Any] = {}  # of an evaluation, from the files, by the row of a table

    def words_of(cell: Cell) -> Words:
        labels = [f"study={question.name}", *([f"row={cell['row']}"] if "row" in cell else [])]
        shown, tags = (json.dumps(each, ensure_ascii=False) for each in (_name(cell), labels))
        log = (f"log.group={question.name}", f"log.name={shown}", f"log.tags={tags}")
        words = (*log, *question.overrides(cell), *overrides)
        words, row = words if data == "prepared" else _stood_in(question.base, words), cell.get("row")
        if row not in windows:
            windows[row] = load(question.base, words)["evaluate.windows"] or "all"
        return compared(question.base, words, windows[row])

    cells = _cells(question, words_of)
    is_empty, fix = all(held_out for _, held_out, _ in cells), "widen its bounds, or give it other budgets"
    refuse(is_empty, "no run of the grid is within its bounds", fix, key="grid")
    words = [words_of(cell) for cell, _, _ in cells]
    experiments, families = zip(*_experiments(question.base, words))
    trunks = _trunks(experiments, families)
    branches = Counter(trunk.run for trunk in trunks if trunk)
    runs = [
        Run(
            run=name,
            name=_name(cell),
            base=question.base,
            overrides=words_of_run,
            held_out=held_out,
            steps=experiment.steps,
            # A trunk with one branch saves nothing: that run trains its own stable phase.
            trunk=(shared := trunk if trunk and branches[trunk.run] > 1 else None),
            flops=_flops(experiment, experiment.steps, 0 if shared is None else shared.step),
            root=str(Path(experiment.config["runs"])),
            point=point(experiment) | ({"beside": rung} if question.tune else {}),
            planned=experiment,
        )
        for name, (cell, held_out, rung), words_of_run, experiment, trunk in zip(
            [run_id(experiment.spec) for experiment in experiments], cells, words, experiments, trunks
        )
    ]
    _check(question, runs)
    return Plan(question, tuple(runs), _command(question, overrides))


def _command(question: Question, overrides: Sequence[str]) -> Words:
    """The command that makes the plan again. Where the ledger lies is not part of it, nor is the folder of a file."""
    if not question.source:
        return ()
    scale = [] if question.at is None else ["--at", question.at]
    words = [word for word in overrides if not word.startswith("runs=")]
    extensions = [word for path in schema.extensions() for word in ("--extend", Path(path).name)]
    return ("study", question.source, *scale, *words, *extensions)


def _stood_in(base: str, words: Words) -> Words:
    """The words with a synthetic language in the place of the data, another one for other data. Its vocabulary is the
    one that the data's tokenizer learns, where the config states it.
    """
    data = [word for word in words if word.startswith(("data=", "data."))]
    if not data:
        return words
    config = load(base, words)
    tokenizer, multiple = config.tree["data"].get("tokenizer"), config["train.round_vocabulary"]
    count = tokenizer.get("vocabulary") if isinstance(tokenizer, Mapping) else None
    of_data = (
        [] if count is None or config["size.vocabulary"] else [f"size.vocabulary={-(-count // multiple) * multiple}"]
    )
    others = (word for word in words if word not in data)
    return (*others, "data=synthetic", f"data.seed={zlib.crc32(' '.join(data).encode())}", *of_data)


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

    cells = list(question.cells(lambda cell: probe(cell).cost))
    rate = None if question.rate is None else schema.build("rate", question.rate)

    def rated(cell: Cell) -> Cell:
        """The cell with its rate to four digits: a person can type it, and any machine's logarithm gives this run."""
        keys = {} if rate is None else rate.keys(model(words_of(cell)))
        digits = {key: value if isinstance(value, int) else float(f"{value:.4g}") for key, value in keys.items()}
        return {**digits, **cell}

    planned = [(rated(cell), held_out, "") for cell, held_out in cells]
    rungs: dict[str, Cell] = {}  # the first seed of each
    for cell, held_out, _ in planned if question.tune else ():
        if not held_out:
            rungs.setdefault(_name({**cell, "seed": 0}), cell)
    beside = [
        ({**cell, key: value}, True, _name(cell)) for cell in rungs.values() for key, value in _beside(probe(cell))
    ]
    return planned + beside


def _beside(experiment: Experiment) -> Iterator[tuple[str, float]]:
    """Half and twice the learning rate, and the batch, of a run."""
    for factor in (0.5, 2.0):
        yield "optimizer.lr", float(f"{factor * experiment.optimizer.lr:.4g}")
        rows = experiment.config["train.batch"]
        if isinstance(rows, int) and rows % 2 == 0:
            yield "train.batch", int(factor * rows)


def _experiments(base: str, words: Sequence[Words]) -> list[tuple[Experiment, Words]]:
    """`assemble(load(base, words))` of each run's words, in their order, and the words without what varies: its family.

    Runs of a family differ in seed and budget alone, so that its model is built once.
    """
    from scaling.training.experiment import assemble, varied

    def family(members: Sequence[Words]) -> Iterator[Experiment]:
        first = assemble(load(base, members[0]))
        values = [{key: word for word in line if (key := word.partition("=")[0]) in VARIED} for line in members]
        # A key that others refer to (${train.tokens}), or that a later word takes back, is found by trying, for each
        # key, the first run that gives it another value than the first run of all does.
        differing = ([place for place, value in enumerate(values) if value[key] != values[0][key]] for key in values[0])
        probes = {places[0] for places in differing if places}
        if all(
            varied(first, values[place].values()).config.tree == assemble(load(base, members[place])).config.tree
            for place in probes
        ):
            yield from (varied(first, value.values()) for value in values)
        else:
            yield from (assemble(load(base, line)) for line in members)

    families: dict[Words, list[int]] = {}
    for place, line in enumerate(words):
        common = tuple(f"{key}=" if (key := word.partition("=")[0]) in VARIED else word for word in line)
        families.setdefault(common, []).append(place)
    by_place = {
        place: (experiment, common)
        for common, places in families.items()
        for place, experiment in zip(places, family([words[place] for place in places]))
    }
    return [by_place[place] for place in range(len(words))]


def _trunks(experiments: Sequence[Experiment], families: Sequence[Words]) -> list[Branch | None]:
    """The trunk that each run may branch from, and the step; runs of a family, a seed and a warmup have one trunk."""
    trunks = [experiment.trunk() for experiment in experiments]
    # A warmup that is a fraction of the run has a number of steps that follows from the run's length.
    keys = [
        (family, experiment.seed, trunk and trunk[0].schedule.warmup)
        for experiment, family, trunk in zip(experiments, families, trunks)
    ]
    first = {key: trunk[0] for key, trunk in zip(reversed(keys), reversed(trunks)) if trunk}
    names = {key: run_id(trunk.spec) for key, trunk in first.items()}
    return [
        None if trunk is None or not trunk[1] else Branch(names[key], trunk[1], _flops(experiment, trunk[1]))
        for key, trunk, experiment in zip(keys, trunks, experiments)
    ]


def _flops(experiment: Experiment, last: int, first: int = 0) -> float:
    """The FLOPs between two steps."""
    return (experiment.tokens(last) - experiment.tokens(first)) * experiment.cost.flops_train_per_token


def _name(cell: Cell) -> str:
    """A run among its study's: `width=16 heads=1 tokens=500k`, `GeLU seed=0`."""
    return " ".join(assignments(flat(cell)))


def _check(question: Question, runs: Sequence[Run]) -> None:
    """Refuse two cells that are one run, and a law that has more parameters than the runs that are left to fit it have
    sizes, budgets and mixtures.
    """
    seen: dict[str, str] = {}
    fix = "an axis does not change what is computed, or the held-out runs are in the grid"
    for run in runs:
        what = f"two cells are one run: {seen.get(run.run)!r} and {run.name!r}"
        refuse(run.run in seen, what, fix, key="grid")
        seen[run.run] = run.name
    if question.law is None:
        return
    from scaling.laws import named
    from scaling.studies.identifiability import smallest_grid, spelled

    points = {
        (run.point["N_total"], run.steps, *(value for key, value in run.point.items() if key.startswith("p_")))
        for run in runs
        if not run.held_out
    }
    law = named(question.law)
    if len(points) <= (needed := len(law.parameter_names)):
        raise ScalingError(
            f"{plural(len(points), 'different point')} to fit {needed} parameters",
            key="grid",
            fix="add sizes or budgets, hold out less, or ask for a law with fewer parameters; "
            f"the smallest grid that identifies this one is {spelled(smallest_grid(law))}",
        )


# The plan in the ledger


def enter(ledger: Ledger, plan: Plan, candidates: Sequence[Run] = ()) -> list[str]:
    """Write the plan and its runs into the ledger; the names of the runs by which it extends the plan of its name.

    A plan that asks another question under the same name is refused, and what differs is stated. `candidates` are runs
    that belong to the question, of which an adaptive study has entered some.
    """
    name, document = plan.question.name, document_of(plan)
    earlier, added = None, []
    if name in ledger.studies():
        path = ledger.plan_file(name)
        earlier = ledger.plan(name)
        added = _added(earlier, document, name, path, candidates)
    for run in (*plan.runs, *plan.trunks.values()):
        if run.planned is not None:  # others were entered before
            ledger.add(run.planned.spec)
    if earlier is None:
        ledger.save_plan(name, document)
    elif added or differences(earlier["study"], document["study"]):
        ledger.extend_plan(name, document, path)
    return added


def entered(ledger: Ledger, name: str, words: Sequence[str] = ()) -> Plan:
    """The plan that was entered under a name; `words` are further overrides, which may not change what is computed."""
    document = ledger.plan(name)
    try:
        question = Question(**document["study"])
        runs = tuple(
            Run(
                **{key: entry[key] for key in STORED if key not in ("overrides", "point")},
                **{key: entry[key] for key in OF_A_TASK if "task" in entry},
                base=question.base,
                overrides=(*entry["overrides"], *words),
                point=canonical(entry["point"]),
                trunk=None if entry["trunk"] is None else Branch(**entry["trunk"]),
                root=str(ledger.root),
            )
            for entry in document["runs"]
        )
        command = tuple(document["command"])
        if any("C" not in run.point for run in runs):
            raise KeyError("C")
    except (KeyError, TypeError, AttributeError) as error:
        what = f"the plan is damaged, or of another version: {type(error).__name__} {error}"
        raise ScalingError(what, file=ledger.plan_file(name), fix="plan again") from None
    return Plan(question, runs, command)


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
    return {"study": asdict(plan.question), "command": list(plan.command), "runs": runs}


def _added(earlier: Line, document: Line, name: str, path: Path, candidates: Sequence[Run]) -> list[str]:
    """The names of the runs by which a plan extends an earlier one; refused where it asks another question.

    An extension has every planned run, and its new runs have their recipe and data: they differ from the planned ones
    in their size, budget or seed, or in the values of an axis that the study has, or are trained to see whether a rung
    is tuned. Words that change no run may differ.
    """

    def changes(part: Callable[[Line], Line]) -> list[str]:
        changed = differences(part(earlier["study"]), part(document["study"]))
        return [f"{key} was {before!r} and is {after!r}" for key, (before, after) in changed.items()]

    then, now = ({entry["run"]: entry for entry in plan["runs"]} for plan in (earlier, document))
    new, gone = ([entry for run, entry in a.items() if run not in b] for a, b in ((now, then), (then, now)))
    moved = [run for run in then if run in now and then[run]["held_out"] != now[run]["held_out"]]
    reasons = [f"{then[run]['name']} is held out in one" for run in moved]
    reasons += changes(lambda study: {key: study[key] for key in ("laws", "target")})
    own = {run.run for run in candidates}
    others = [run for run in new if run["run"] not in own and "task" not in run and not run["point"].get("beside")]
    foreign = {} if gone else _foreign(others, earlier)
    reasons += [f"{word} is new to the study ({_some(names)})" for word, names in foreign.items()]
    if not gone and not reasons:
        return [entry["name"] for entry in new]
    counted = [
        f"{plural(len(names), 'run')} {'is' if len(names) == 1 else 'are'} {what} ({_some(names)})"
        for what, runs in (("new", new), ("gone", gone))
        if (names := [run["name"] for run in runs])
    ]
    raise ScalingError(
        f"the study {name} has another plan: "
        + "; ".join([*counted, *reasons, *changes(lambda study: {"set": study["set"]})]),
        fix="keep the planned runs and add sizes, budgets or seeds to extend it; or give the changed study another "
        "name (runs that both have are shared)",
        file=path,
    )


def _foreign(new: Sequence[Line], earlier: Line) -> dict[str, list[str]]:
    """The words of new runs that no extension has, each with the names of its runs."""

    def counted(overrides: Sequence[str]) -> dict[str, str]:
        pairs = (word.partition("=") for word in overrides if word != COMPARED)
        return {key: value for key, _, value in pairs if is_counted(key)}

    words = [counted(run["overrides"]) for run in earlier["runs"]]
    varied = {key for line in words for key in line if len({other.get(key) for other in words}) > 1}
    of_size = (f"size.{key}" for key in SIZES if key not in ("vocabulary", "length"))
    free = {*varied, *axes_of(earlier["study"]["grid"]), *VARIED, "size", *of_size}
    free |= {"optimizer.lr", "train.batch"} if earlier["study"]["rate"] is not None else set()
    usual = {key: value for key, value in words[0].items() if key not in free}  # which all planned runs have
    foreign: dict[str, list[str]] = {}
    for run in new:
        own = {key: value for key, value in counted(run["overrides"]).items() if key not in free}
        for key in dict(sorted(own.items() ^ usual.items())):
            foreign.setdefault(f"{key}={own.get(key, 'its default')}", []).append(run["name"])
    return foreign


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:SOME]) + (", …" if len(names) > SOME else "")
