"""Record: a study in the ledger: its plan, written once, and the decisions that were taken while it ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.config import load
from scaling.errors import ScalingError
from scaling.ledger import Ledger, run_id
from scaling.ledger.document import Damaged, differences, disk, publish, read, seal
from scaling.shape import SIZES
from scaling.studies.plan import Job, Plan, Run
from scaling.studies.question import COMPARED, Line, Question, compared, is_counted, named
from scaling.studies.tasks import TaskRun, finetuning
from scaling.training.values import VARIED

if TYPE_CHECKING:
    from scaling.studies.plan import Plan
    from scaling.training.experiment import Experiment


OF_A_TASK = ("start", "task", "labels")
SOME = 3  # differences reported in one line
KEPT = 64  # experiments at hand, and no more than these


def enter(ledger: Ledger, name: str, plan: Plan) -> list[str]:
    """Write the plan and its runs into the ledger; the names of the runs by which it extends the plan of that name.

    A plan that asks another question under the same name is refused, and what differs is stated.
    """
    document = _document(plan)
    earlier, added = None, []
    if name in ledger.studies():
        path = ledger.plan_file(name)
        earlier = ledger.plan(name)
        added = _added(earlier, document, name, path)
    for run in plan.runs:
        ledger.add(run.experiment.spec)
    for trunk in plan.trunks.values():
        ledger.add(trunk.experiment.spec)
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
        runs = tuple(_entered_run(ledger, question, entry, words) for entry in document["runs"])
        by_step = sorted((run for run in runs if run.trunk), key=lambda run: run.trunk[1] if run.trunk else 0)
        last = {run.trunk[0]: run for run in by_step if run.trunk}
        trunks = {
            run["run"]: Job(run["run"], run["steps"], run["flops"], None, partial(_trunk, last.pop(run["run"])))
            for run in document["trunks"]
        }
        if last:
            raise KeyError(*last)
    except (KeyError, TypeError) as error:
        what = f"the plan is damaged, or of another version: {type(error).__name__} {error}"
        raise ScalingError(what, file=ledger.plan_file(name), fix="plan again") from None
    return Plan(question, runs, trunks)


def newest(ledger: Ledger, plan: Plan) -> Plan:
    """The plan, or the one that the ledger has in its place since another command extended the study."""
    name = plan.question.name
    same = ledger.runs_of(name) == [run.run for run in plan.runs]
    return plan if same else entered(ledger, name)


def _entered_run(ledger: Ledger, question: Question, entry: Mapping[str, Any], words: Sequence[str]) -> Run:
    planned: dict[str, Any] = {
        "run": entry["run"],
        "steps": entry["steps"],
        "flops": entry["flops"],
        "name": entry["name"],
        "overrides": tuple(entry["overrides"]),
        "held_out": entry["held_out"],
    }
    own = (*entry["overrides"], *words)
    if "task" in entry:
        again = partial(finetuning, entry["start"], entry["task"], own, entry["run"], str(ledger.root))
        of_task = {key: entry[key] for key in OF_A_TASK}
        return TaskRun(**planned, **of_task, assembled=again, trunk=None)
    trunk = None if entry["trunk"] is None else (entry["trunk"]["run"], entry["trunk"]["step"])
    return Run(**planned, assembled=partial(_assembled, question.base, own, entry["run"]), trunk=trunk)


@lru_cache(maxsize=KEPT)
def _assembled(base: str, words: tuple[str, ...], run: str) -> Experiment:
    from scaling.training.experiment import assemble

    experiment = assemble(load(base, compared(base, words)))
    if run_id(experiment.spec) != run:
        raise ScalingError(
            "this is not the run that was planned: its data, its files or the words given here differ",
            key="run",
            value=run,
            fix="give the changed study another name",
        )
    return experiment


def _trunk(last: Run) -> Experiment:
    trunk = last.experiment.trunk()
    assert trunk is not None
    return trunk[0]


def _document(plan: Plan) -> dict[str, Any]:
    study = asdict(plan.question)
    if not study["tasks"]:  # as plans were written before there were any
        del study["tasks"]
    return {
        "study": study,
        "trunks": [{"run": run.run, "steps": run.steps, "flops": run.flops} for run in plan.trunks.values()],
        "runs": [
            {
                "run": run.run,
                "name": run.name,
                "overrides": list(run.overrides),
                "held_out": run.held_out,
                "steps": run.steps,
                "flops": run.flops,
                "trunk": None if run.trunk is None else {"run": run.trunk[0], "step": run.trunk[1]},
                **({key: getattr(run, key) for key in OF_A_TASK} if isinstance(run, TaskRun) else {}),
            }
            for run in plan.runs
        ],
    }


def _added(earlier: Mapping[str, Any], document: Mapping[str, Any], name: str, path: Path) -> list[str]:
    """The names of the runs by which a plan extends an earlier one; refused where it asks another question.

    An extension has every planned run, and its new runs have their recipe and data: they differ from the planned ones
    in their size, budget or seed, or in the values of an axis that the study has. Words that change no run may differ.
    """
    then, now = ({entry["run"]: entry for entry in plan["runs"]} for plan in (earlier, document))
    new, gone = ([entry for run, entry in a.items() if run not in b] for a, b in ((now, then), (then, now)))
    question_changes = differences(
        *({key: plan["study"][key] for key in ("laws", "target")} for plan in (earlier, document))
    )
    reasons = [f"{then[run]['name']} is held out in one" for run in then if _moved(then[run], now.get(run))]
    reasons += [f"{key} was {before!r} and is {after!r}" for key, (before, after) in question_changes.items()]
    of_runs = [entry for entry in new if "task" not in entry]
    foreign = {} if gone else _foreign(of_runs, list(then.values()), document["study"])
    reasons += [f"{word} is new to the study ({_some(names)})" for word, names in foreign.items()]
    if not gone and not reasons:
        return [entry["name"] for entry in new]
    counted = [
        f"{_count(len(runs))} {what} ({_some([entry['name'] for entry in runs])})"
        for what, runs in (("new", new), ("gone", gone))
        if runs
    ]
    words = differences(*({"set": plan["study"]["set"]} for plan in (earlier, document)))
    reasons += [f"{key} was {before!r} and is {after!r}" for key, (before, after) in words.items()]
    raise ScalingError(
        f"the study {name} has another plan: {'; '.join([*counted, *reasons])}",
        fix="keep the planned runs and add sizes, budgets or seeds to extend it; or give the changed study another "
        "name (runs that both have are shared)",
        file=path,
    )


def _foreign(new: Sequence[Line], planned: Sequence[Line], study: Line) -> dict[str, list[str]]:
    """The words of new runs that no extension has, each with the names of its runs."""
    words = [_words(run) for run in planned]
    varied = {
        key for key in {key for spelled in words for key in spelled} if len({spelled.get(key) for spelled in words}) > 1
    }
    if study["rate"] is not None:
        varied.add("optimizer.lr")
    free = {*varied, *VARIED, "size", *(f"size.{key}" for key in SIZES if key not in ("vocabulary", "length"))}
    usual = [{key: value for key, value in spelled.items() if key not in free} for spelled in words]
    foreign: dict[str, list[str]] = {}
    for run in new:
        own = {key: value for key, value in _words(run).items() if key not in free}
        if own not in usual:
            nearest = min(usual, key=lambda other: len(own.items() ^ other.items()))
            for key in dict(sorted(own.items() ^ nearest.items())):
                foreign.setdefault(f"{key}={own.get(key, 'its default')}", []).append(run["name"])
    return foreign


def _words(run: Line) -> dict[str, str]:
    """The words of a planned run that change what it computes."""
    pairs = (word.partition("=") for word in run["overrides"] if word not in COMPARED)
    return {key: value for key, _, value in pairs if is_counted(key)}


def _moved(then: Mapping[str, Any], now: Mapping[str, Any] | None) -> bool:
    return now is not None and then["held_out"] != now["held_out"]


def _count(number: int) -> str:
    return "1 run is" if number == 1 else f"{number} runs are"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:SOME]) + (", …" if len(names) > SOME else "")


FOLDER = "decisions"

Decision = Mapping[str, Any]


def decisions(ledger: Ledger, study: str) -> list[Decision]:
    """Those on record, in their order; empty where the study is not adaptive."""
    folder, found = ledger.study_folder(study) / FOLDER, list[Decision]()
    while True:
        path = folder / f"{len(found) + 1:04d}.json"
        try:
            document = read(path)
        except Damaged as damage:
            fix = "delete it and the decisions after it; they are then made again"
            raise ScalingError(f"the decision is damaged: {damage}", file=path, fix=fix) from None
        if document is None:
            if not any(other.name > path.name for other in folder.glob("[0-9]*.json")):
                return found
            if not path.exists():  # it was not written since
                fix = "put it back, or delete the decisions after it; they are then made again"
                raise ScalingError("the decision is missing, and later ones are here", file=path, fix=fix)
            continue
        found.append({key: value for key, value in document.items() if key != "sha256"})


def decide(ledger: Ledger, study: str, number: int, document: Decision) -> None:
    """Put the decision of this number on record, on the disk before anything follows from it."""
    folder = ledger.study_folder(study) / FOLDER
    with disk("cannot write a decision"):
        folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{number:04d}.json"
    publish(path, seal(document))  # where another command was quicker, its decision stands


def is_open(made: Sequence[Decision]) -> bool:
    """Whether further runs may be chosen."""
    return bool(made) and "concluded" not in made[-1]


def name_parts(goal: str, budget: float | None) -> list[str]:
    """What the name of an adaptive study shows besides that of its grid."""
    return [f"adaptive={goal.replace('%', ' percent')}", *([] if budget is None else [f"budget={budget:g}"])]


def options(study: str, made: Sequence[Decision]) -> tuple[str, list[str]]:
    """The name of an adaptive study's grid, and the options that make it adaptive; of another study nothing."""
    for budget in (None, *(one["budget"] for one in made[:1])):
        goal = made[0]["goal"] if made else ""
        if made and study.endswith(ending := named("", None, name_parts(goal, budget))):
            given = [] if budget is None else ["--budget", f"{budget:g}"]
            return study.removesuffix(ending), ["--adaptive", goal, *given]
    return study, []
