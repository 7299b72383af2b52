"""Pull: runs come back from W&B, whole, into a ledger of their own, which tables, fits and reports read like any other.

    store/<run>/log.jsonl       an attempt a W&B run; its start states which it shows, and how far
    store/<run>/result.json     of the attempt that is kept: the first that has a result
    studies/<sweep>/plan.json   the runs of a sweep, where its command is ours
    points.csv                  a row a run

A pull that is stopped at any moment loses nothing: the next one continues.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling import atomic
from scaling.errors import ScalingError
from scaling.ledger import RESULTS, Ledger, is_ledger, run_id
from scaling.ledger.document import differences, disk, seal, stamp
from scaling.ledger.run import LOG
from scaling.studies.question import Question
from scaling.sweeps import file
from scaling.sweeps.table import name as named
from scaling.sweeps.table import ordered, row
from scaling.sweeps.wandb_client import connect, patient
from scaling.sweeps.wandb_run import Row, WandbRun, cell, entries, missing, point, result, spec

if TYPE_CHECKING:
    import wandb

    from scaling.studies.plan import Plan

LISTED = 100  # runs of one page of the list
AT_ONCE = 8  # histories under way
MARK = "pulled"  # a file that only pulled ledgers have
MISSING = "missing"


@dataclass(frozen=True)
class Source:
    """A project, or one sweep of it."""

    project: str  # entity/project
    sweep: str | None

    @staticmethod
    def of(name: str, api: wandb.Api) -> Source:
        """The source of a name: PROJECT, ENTITY/PROJECT, or ENTITY/PROJECT/SWEEP."""
        parts = name.split("/")
        if len(parts) == 1:
            parts = [os.environ.get("WANDB_ENTITY") or patient(lambda: api.default_entity) or "", *parts]
        return Source("/".join(parts[:2]), parts[2] if len(parts) == 3 else None)

    def listed(self, api: wandb.Api) -> dict[str, Any]:
        """The client's runs, without their histories, by their paths; compared with the server's own count."""
        if self.sweep:
            self.tree(api, self.sweep)
        filters = {"sweep": self.sweep} if self.sweep else {}
        try:
            runs = patient(lambda: api.runs(self.project, filters, per_page=LISTED, lazy=False))
            found = {f"{self.project}/{run.id}": run for run in patient(lambda: list(runs))}
        except ScalingError as error:
            raise _unknown(error, "could not find project", "PROJECT", self.project) from None
        if len(found) < (total := len(runs)):
            raise ScalingError(f"W&B lists {len(found)} of {total} runs", fix="try again", code=1)
        return found

    def tree(self, api: wandb.Api, sweep: str) -> Mapping[str, Any]:
        """The file of a sweep, as the server has it."""
        try:
            return patient(lambda: api.sweep(f"{self.project}/{sweep}").config)
        except ScalingError as error:
            raise _unknown(error, "could not find sweep", "SWEEP", f"{self.project}/{sweep}") from None


def _unknown(error: ScalingError, told: str, key: str, value: str) -> ScalingError:
    """The client's failure, or that there is no such thing, where the client `told` so."""
    if told not in error.what.lower():
        return error
    return ScalingError(f"W&B has no such {key.lower()}", key=key, value=value)


def pull(
    name: str,
    to: str | Path | None,
    runs: str | Path,
    plan: Plan | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Bring the runs of a project or of a sweep into a ledger, and write their points.csv; with a plan they are those
    of its study. The ledger is `to`, or a folder of its own in the folder `runs`.

    Return the document of `scaling pull --json`.
    """
    if not 1 <= len(name.split("/")) <= 3 or not all(name.split("/")):
        raise ScalingError("expected ENTITY/PROJECT or ENTITY/PROJECT/SWEEP", key="PROJECT", value=name)
    api = connect()
    source = Source.of(name, api)
    under = "-".join([*source.project.split("/"), *([source.sweep] if source.sweep else [])])
    pulled = Pulled(Path(to or Path(runs, "pulled", under)))
    listed = source.listed(api)
    shown = [_shown(path, run) for path, run in listed.items()]
    found = by_run(shown)
    numbers = {path: number for attempts in found.values() for path, number in pulled.numbers(attempts).items()}
    ours = [run for attempts in found.values() for run in attempts]
    lacking = [run for run in ours if pulled.lacks(run)]

    def history(run: WandbRun) -> list[Row]:
        return patient(lambda: sorted(listed[run.path].scan_history(use_cache=False), key=lambda row: row["_step"]))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            for done, (run, rows) in enumerate(zip(lacking, pool.map(history, lacking), strict=True), start=1):
                pulled.enter(run, numbers[run.path], rows)
                if done == len(lacking) or done % 50 == 0:
                    tell(f"{done} of {len(lacking)} histories")
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    differing = [sentence for attempts in found.values() for sentence in pulled.conclude(attempts)]
    sweeps = _sweeps(source, api, ours)
    for sweep in sweeps.values():
        pulled.save_plan(sweep.name, _plan(found, sweep))
    running = sum(run.outcome is None for run in ours)
    lacks = {run.path: pulled.attempts[run.path].lacks for run in ours if run.path in pulled.attempts}
    kept = {run: kept_of(attempts) for run, attempts in found.items() if not _is_trunk(attempts)}
    return {
        "folder": str(pulled.ledger.root),
        "points": str(_write_points(pulled.ledger, found, sweeps, plan, name)),
        "complete": not any(lacks.values()),
        "wandb_runs": len(shown),
        "fetched": len(lacking),
        "known": len(ours) - len(lacking) - running,
        "running": running,
        "foreign": len(shown) - len(ours),
        "runs": dict(Counter(MISSING if one is None else str(one.outcome) for one in kept.values())),
        "missing": {path: list(sentences) for path, sentences in lacks.items() if sentences},
        "differing": differing,
    }


def _shown(path: str, run: Any) -> WandbRun:
    summary = dict(run.summary_metrics)
    return WandbRun(
        path=path,
        name=run.name,
        state=run.state,
        created=run.created_at,
        config=run.config,
        summary=summary,
        sweep=run.sweep_name,
        trunk=run.job_type == "trunk",
        lines=run.history_line_count,
        last=max((run.history_keys or {}).get("lastStep", -1), summary.get("_step", -1)),
        beat=run.heartbeat_at or "",
    )


def by_run(shown: Iterable[WandbRun]) -> dict[str, list[WandbRun]]:
    """The W&B runs that show one run of the ledger, oldest first: its attempts, those of a sweep, another machine's."""
    attempts: dict[str, list[WandbRun]] = {}
    for run in sorted(shown, key=lambda run: (run.created, run.path)):
        if run.run is not None:
            attempts.setdefault(run.run, []).append(run)
    return attempts


def kept_of(attempts: Sequence[WandbRun]) -> WandbRun | None:
    """As in the ledger, the first result is kept; None where there is none."""
    return next((run for run in attempts if run.outcome in RESULTS), None)


def _is_trunk(attempts: Sequence[WandbRun]) -> bool:
    return all(run.trunk for run in attempts)


@dataclass(frozen=True)
class Attempt:
    """An attempt that was pulled: its number, how far it was seen, and what its history lacked."""

    number: int
    version: str
    lacks: tuple[str, ...]


class Pulled:
    """The ledger under a folder, as a pull writes it; one pull at a time. It holds what W&B has, so a later pull may
    write any of it again.
    """

    def __init__(self, folder: Path):
        if is_ledger(folder) and not (folder / MARK).exists():
            raise ScalingError("holds runs that were trained, not pulled", file=folder, fix="name another: --to")
        with disk("cannot write there"):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / MARK).touch()
        self.ledger = Ledger.create(folder)
        self.attempts: dict[str, Attempt] = {}  # by the paths of their W&B runs
        for run in self.ledger.runs():
            for record in self.ledger.attempts(run):
                start, end = record.start, record.end
                if end is not None and "wandb" in start:
                    self.attempts[start["wandb"]] = Attempt(record.number, start["seen"], tuple(end["missing"]))

    def lacks(self, run: WandbRun) -> bool:
        """Whether the history of an ended run is yet to be fetched, or was not complete, or is longer now."""
        attempt = self.attempts.get(run.path)
        return run.outcome is not None and (attempt is None or attempt.version != run.version or bool(attempt.lacks))

    def numbers(self, attempts: Sequence[WandbRun]) -> dict[str, int]:
        """The attempt that each W&B run of a run is: what it was, else the lowest free number, the oldest first."""
        taken = {run.path: self.attempts[run.path].number for run in attempts if run.path in self.attempts}
        free = (number for number in count(1) if number not in set(taken.values()))
        return {run.path: taken.get(run.path) or next(free) for run in attempts}

    def enter(self, run: WandbRun, number: int, history: Sequence[Row]) -> None:
        """An attempt, whole or not at all: the log is written anew."""
        assert run.run is not None
        lacks = missing(history, run)
        start = {"kind": "start", "attempt": number, "time": run.created, "wandb": run.path, "seen": run.version}
        end = {"kind": "end", "attempt": number, "time": run.created, "outcome": run.outcome}
        end |= {"reason": run.summary.get("reason"), "missing": lacks}
        log = self.ledger.folder(run.run) / LOG
        others = _by_attempt(log)
        others[number] = b"".join(map(stamp, [start, *entries(history), end]))
        _write(log, b"".join(others[each] for each in sorted(others)))
        self.attempts[run.path] = Attempt(number, run.version, tuple(lacks))

    def conclude(self, attempts: Sequence[WandbRun]) -> list[str]:
        """Write a run's spec, where W&B has all of it, and the kept result; a sentence for each other result."""
        first, kept = attempts[0], kept_of(attempts)
        assert first.run is not None
        folder, run_spec = self.ledger.folder(first.run), spec(first)
        if _id(run_spec) == first.run:
            _write(folder / "spec.json", seal({"run": first.run, "entered": first.created, "spec": run_spec}))
        if kept is None:
            folder.mkdir(parents=True, exist_ok=True)
            return []
        about = {"run": first.run, "attempt": self.attempts[kept.path].number, "outcome": kept.outcome}
        _write(folder / "result.json", seal({**about, **result(kept)}))
        others = [run for run in attempts if run.outcome in RESULTS and run is not kept]
        return [
            f"{key} is {here!r} in {kept.path} and {there!r} in {other.path}"
            for other in others
            for key, (here, there) in differences(_claims(kept), _claims(other)).items()
        ]

    def save_plan(self, name: str, plan: Mapping[str, Any]) -> None:
        """A sweep as a study of the ledger: what was asked of each run so far; tables find their rows by it."""
        _write(self.ledger.study_folder(name) / "plan.json", seal(plan))


def _claims(run: WandbRun) -> dict[str, object]:
    """What another attempt has to repeat."""
    claimed = {key: value for key, value in result(run).items() if key != "circumstances"}
    return {"outcome": run.outcome, **claimed}


def _id(run_spec: Mapping[str, Any]) -> str | None:
    try:
        return run_id(run_spec)
    except ScalingError:
        return None


def _by_attempt(log: Path) -> dict[int, bytes]:
    """The lines of each attempt in a log that was pulled."""
    parts: dict[int, bytes] = {}
    number = 0
    for line in log.read_bytes().splitlines(keepends=True) if log.exists() else ():
        if line.startswith(b'{"kind":"start"'):
            number = json.loads(line)["attempt"]
        parts[number] = parts.get(number, b"") + line
    return parts


def _write(path: Path, content: bytes) -> None:
    """The file with this content. A copy need not outlive a power cut; its checksum shows it, and a pull fixes it."""
    if path.exists() and path.read_bytes() == content:
        return
    with disk("cannot write a run"):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = atomic.temporary(path)
        partial.write_bytes(content)
        os.replace(partial, path)


def _sweeps(source: Source, api: wandb.Api, ours: Iterable[WandbRun]) -> dict[str, file.Sweep]:
    """The sweeps of the runs, by their names; without those whose command is not ours."""
    sweeps = {}
    for name in {run.sweep for run in ours if run.sweep}:
        tree = source.tree(api, name)
        try:
            sweeps[name] = file.of(name, dict(tree))
        except ScalingError:
            continue
    return sweeps


def _write_points(
    ledger: Ledger,
    found: Mapping[str, Sequence[WandbRun]],
    sweeps: Mapping[str, file.Sweep],
    plan: Plan | None,
    name: str,
) -> Path:
    """points.csv: a row a run, as a study or a sweep writes it; trunks are parts of their branches' runs."""
    from scaling.studies.findings import rows, write_points  # takes seconds to import, and mistakes come first
    from scaling.studies.record import enter

    table = []
    for run, attempts in found.items():
        if not _is_trunk(attempts):
            ended = ledger.result(run) or {"outcome": MISSING, "loss": None}
            shown = attempts[0]
            sweep = sweeps.get(shown.sweep or "")
            drawn = {} if sweep is None else cell(shown, sweep.parameters)
            table.append(row(run, _named(shown, sweep), ended["outcome"], ended["loss"], drawn, point(shown)))
    if plan is not None:
        enter(ledger, plan.question.name, plan)
        table = rows(ledger, plan)
    if not table:
        raise ScalingError("none of its runs are ours", key="PROJECT", value=name)
    path = ledger.root / "points.csv"
    write_points(ordered(table) if plan is None else table, path)
    return path


def _named(shown: WandbRun, sweep: file.Sweep | None) -> str:
    """What sets it apart in its sweep, as `--local` names it; else what W&B shows it under."""
    drawn = {} if sweep is None else cell(shown, sweep.parameters)
    whole = sweep is not None and len(drawn) == len(sweep.parameters)
    return named(drawn) if whole else shown.name


def _plan(found: Mapping[str, Sequence[WandbRun]], sweep: file.Sweep) -> dict[str, Any]:
    """The sweep as a study: for each run the words that it was trained with."""
    base = next((word for word in sweep.words if "=" not in word), "")
    words = [word for word in sweep.words if "=" in word]
    question = Question(name=sweep.name, question="", base=base, set={}, grid=[{"sweep": [sweep.name]}])
    runs = []
    for run, attempts in found.items():
        shown = next((shown for shown in attempts if shown.sweep == sweep.name), None)
        if shown is not None:
            about, drawn = point(shown), cell(shown, sweep.parameters)
            overrides = [*words, *(f"{key}={value}" for key, value in drawn.items())]
            entry = {"overrides": overrides, "held_out": False, "steps": about["S"], "flops": about["C"], "trunk": None}
            runs.append({"run": run, "name": _named(shown, sweep), **entry})
    return {"study": asdict(question), "trunks": [], "runs": runs}
