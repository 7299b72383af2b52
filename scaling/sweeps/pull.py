"""Pull: runs come back from W&B, whole, into a ledger of their own, which tables, fits and reports read like any other.

    store/<run>/log.jsonl       an attempt a W&B run that has ended; its start states which it shows, and how far
    store/<run>/result.json     of the attempt that is kept: the first that has a result
    studies/<sweep>/plan.json   the runs of a sweep, where its command is ours
    points.csv                  a row a run

A pull that is stopped at any moment loses nothing: the next one continues.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling import atomic
from scaling.errors import ScalingError
from scaling.ledger import RESULTS, Ledger, is_ledger, run_id
from scaling.ledger.document import differences, disk, seal, stamp
from scaling.ledger.run import LOG
from scaling.studies.question import Question
from scaling.sweeps import file
from scaling.sweeps.table import columns, ordered
from scaling.sweeps.table import name as named
from scaling.sweeps.wandb_client import connect, patient
from scaling.sweeps.wandb_run import Row, WandbRun, cell, entries, missing, point, result, spec

if TYPE_CHECKING:
    import wandb

    from scaling.studies.plan import Plan

LISTED = 100  # runs of one page of the list
AT_ONCE = 8  # histories under way
MARK = "pulled"  # a file that only pulled ledgers have

Attempts = Sequence[WandbRun]  # of one run of the ledger, oldest first


def _listed(api: wandb.Api, project: str, sweep: str | None) -> dict[str, Any]:
    """The client's runs, without their histories, by their paths; compared with the server's own count."""
    if sweep is not None:
        _tree(api, project, sweep)
    try:
        runs = patient(lambda: api.runs(project, {"sweep": sweep} if sweep else {}, per_page=LISTED, lazy=False))
        found = {f"{project}/{run.id}": run for run in patient(lambda: list(runs))}
    except ScalingError as error:
        raise _unknown(error, "project", project) from None
    if len(found) < (total := len(runs)):
        raise ScalingError(f"W&B lists {len(found)} of {total} runs", fix="try again", code=1)
    return found


def _tree(api: wandb.Api, project: str, sweep: str) -> Mapping[str, Any]:
    """The file of a sweep, as the server has it."""
    try:
        return patient(lambda: api.sweep(f"{project}/{sweep}").config)
    except ScalingError as error:
        raise _unknown(error, "sweep", f"{project}/{sweep}") from None


def _unknown(error: ScalingError, kind: str, value: str) -> ScalingError:
    """The client's failure, or that there is no such thing, where the client reports so."""
    if f"could not find {kind}" not in error.what.lower():
        return error
    return ScalingError(f"W&B has no such {kind}", key=kind.upper(), value=value)


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
    parts = name.split("/")
    if not 1 <= len(parts) <= 3 or not all(parts):
        raise ScalingError("expected ENTITY/PROJECT or ENTITY/PROJECT/SWEEP", key="PROJECT", value=name)
    api = connect()
    if len(parts) == 1:
        parts = [os.environ.get("WANDB_ENTITY") or patient(lambda: api.default_entity) or "", name]
    project, sweep = "/".join(parts[:2]), parts[2] if len(parts) == 3 else None
    ledger = _ledger(Path(to or Path(runs, "pulled", "-".join(parts))))
    listed = _listed(api, project, sweep)
    shown = sorted((_shown(path, run) for path, run in listed.items()), key=lambda run: (run.created, run.path))
    found: dict[str, list[WandbRun]] = {}  # the W&B runs that show one run: its attempts, or another machine's
    for run in shown:
        if run.run is not None:
            found.setdefault(run.run, []).append(run)
    stale, lacking = _fetch(ledger, listed, found, tell)
    differing = [sentence for attempts in found.values() for sentence in _conclude(ledger, attempts)]
    sweeps = _sweeps(api, project, found)
    for each in sweeps.values():
        _write(ledger.study_folder(each.name) / "plan.json", seal(_document(ledger, found, each)))
    ours = [run for attempts in found.values() for run in attempts]
    running = sum(run.outcome is None for run in ours)
    fetched = sum(run.outcome is not None for each in stale for run in found[each])
    kept = [_kept(attempts) for attempts in found.values() if not _is_trunk(attempts)]
    return {
        "folder": str(ledger.root),
        "points": str(_write_points(ledger, found, sweeps, plan, name)),
        "complete": not lacking,
        "wandb_runs": len(shown),
        "fetched": fetched,
        "known": len(ours) - fetched - running,
        "running": running,
        "foreign": len(shown) - len(ours),
        "runs": dict(Counter("missing" if run is None else str(run.outcome) for run in kept)),
        "missing": lacking,
        "differing": differing,
    }


def _ledger(folder: Path) -> Ledger:
    """The ledger of a folder that pulls write: it holds what W&B has, so any of it may be written again."""
    if is_ledger(folder) and not (folder / MARK).exists():
        raise ScalingError("holds runs that were trained, not pulled", file=folder, fix="name another: --to")
    with disk("cannot write there"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MARK).touch()
    return Ledger.create(folder)


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


def _kept(attempts: Attempts) -> WandbRun | None:
    """As in the ledger, the first result is kept; None where there is none."""
    return next((run for run in attempts if run.outcome in RESULTS), None)


def _ended(attempts: Attempts) -> list[WandbRun]:
    return [run for run in attempts if run.outcome is not None]


def _is_trunk(attempts: Attempts) -> bool:
    return all(run.trunk for run in attempts)


def _fetch(
    ledger: Ledger, listed: Mapping[str, Any], found: Mapping[str, Attempts], tell: Callable[[str], None]
) -> tuple[Sequence[str], Mapping[str, list[str]]]:
    """Write the logs of the runs that have ended since, whose history is longer now, or was not complete: these runs,
    and what the histories of W&B runs lack, by their paths.
    """
    known: dict[str, tuple[str, list[str]]] = {}  # by W&B run: how far it was seen, and what was missing
    for run in ledger.runs():
        for record in ledger.attempts(run):
            if record.end is not None and "wandb" in record.start:
                known[record.start["wandb"]] = record.start["seen"], record.end["missing"]
    stale = [
        run
        for run, attempts in found.items()
        if any(known.get(each.path) != (each.version, []) for each in _ended(attempts))
    ]

    def history(run: WandbRun) -> list[Row]:
        return patient(lambda: sorted(listed[run.path].scan_history(use_cache=False), key=lambda row: row["_step"]))

    def histories(run: str) -> list[list[Row]]:
        return [history(each) for each in _ended(found[run])]

    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            for done, (run, fetched) in enumerate(zip(stale, pool.map(histories, stale), strict=True), start=1):
                log = []
                for number, (each, rows) in enumerate(zip(_ended(found[run]), fetched, strict=True), start=1):
                    about = {"attempt": number, "time": each.created}
                    known[each.path] = each.version, missing(rows, each)
                    log.append({"kind": "start", **about, "wandb": each.path, "seen": each.version})
                    log += entries(rows)
                    end = {"outcome": each.outcome, "reason": each.summary.get("reason")}
                    log.append({"kind": "end", **about, **end, "missing": known[each.path][1]})
                _write(ledger.folder(run) / LOG, b"".join(map(stamp, log)))
                if done == len(stale) or done % 50 == 0:
                    tell(f"{done} of {len(stale)} histories")
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    ended = [each.path for attempts in found.values() for each in _ended(attempts)]
    return stale, {path: known[path][1] for path in ended if known[path][1]}


def _conclude(ledger: Ledger, attempts: Attempts) -> list[str]:
    """Write a run's spec, where W&B has all of it, and the kept result; a sentence for each other result."""
    first, kept = attempts[0], _kept(attempts)
    assert first.run is not None
    folder, run_spec = ledger.folder(first.run), spec(first)
    if _id(run_spec) == first.run:
        _write(folder / "spec.json", seal({"run": first.run, "entered": first.created, "spec": run_spec}))
    if kept is None:
        folder.mkdir(parents=True, exist_ok=True)
        return []
    about = {"run": first.run, "attempt": 1 + _ended(attempts).index(kept), "outcome": kept.outcome}
    _write(folder / "result.json", seal({**about, **result(kept)}))

    def claims(run: WandbRun) -> dict[str, object]:
        """What another attempt has to repeat."""
        return {**result(run), "outcome": run.outcome, "circumstances": None}

    return [
        f"{key} is {here!r} in {kept.path} and {there!r} in {other.path}"
        for other in attempts
        if other.outcome in RESULTS and other is not kept
        for key, (here, there) in differences(claims(kept), claims(other)).items()
    ]


def _id(run_spec: Mapping[str, Any]) -> str | None:
    try:
        return run_id(run_spec)
    except ScalingError:
        return None


def _write(path: Path, content: bytes) -> None:
    """The file with this content. A copy need not outlive a power cut; its checksum shows it, and a pull fixes it."""
    if path.exists() and path.read_bytes() == content:
        return
    with disk("cannot write a run"):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = atomic.temporary(path)
        partial.write_bytes(content)
        os.replace(partial, path)


def _sweeps(api: wandb.Api, project: str, found: Mapping[str, Attempts]) -> dict[str, file.Sweep]:
    """The sweeps of the runs, by their names; without those whose command is not ours."""
    sweeps = {}
    for name in {run.sweep for attempts in found.values() for run in attempts if run.sweep}:
        tree = _tree(api, project, name)
        try:
            sweeps[name] = file.of(name, dict(tree))
        except ScalingError:
            continue
    return sweeps


def _drawn(shown: WandbRun, sweep: file.Sweep | None) -> tuple[str, dict[str, Any]]:
    """What the sweep drew for a run, and its name: as `--local` names it where all is known, else as W&B does."""
    drawn = {} if sweep is None else cell(shown, sweep.parameters)
    whole = sweep is not None and len(drawn) == len(sweep.parameters)
    return named(drawn) if whole else shown.name, drawn


def _write_points(
    ledger: Ledger, found: Mapping[str, Attempts], sweeps: Mapping[str, file.Sweep], plan: Plan | None, name: str
) -> Path:
    """points.csv: a row a run, as a study or a sweep writes it; trunks are parts of their branches' runs."""
    from scaling.studies.plan import enter  # takes seconds to import, and mistakes come first
    from scaling.studies.points import row, rows, write_points

    table = []
    for run, attempts in found.items():
        if not _is_trunk(attempts):
            shown = attempts[0]
            label, drawn = _drawn(shown, sweeps.get(shown.sweep or ""))
            table.append(row(run, label, ledger.result(run), columns(drawn, point(shown))))
    if plan is not None:
        enter(ledger, plan.question.name, plan)
        table = rows(ledger, plan)
    if not table:
        raise ScalingError("none of its runs are ours", key="PROJECT", value=name)
    path = ledger.root / "points.csv"
    write_points(ordered(table) if plan is None else table, path)
    return path


def _document(ledger: Ledger, found: Mapping[str, Attempts], sweep: file.Sweep) -> dict[str, Any]:
    """The sweep as a study of the ledger: for each run the words that it was trained with; tables find rows by it."""
    from scaling.studies.plan import Plan, Run, document_of

    base = next((word for word in sweep.words if "=" not in word), "")
    words = [word for word in sweep.words if "=" in word]
    runs = []
    for run, attempts in found.items():
        shown = next((shown for shown in attempts if shown.sweep == sweep.name), None)
        if shown is not None:
            about, (label, drawn) = point(shown), _drawn(shown, sweep)
            overrides = (*words, *(f"{key}={value}" for key, value in drawn.items()))
            runs.append(Run(run, label, base, overrides, False, about["S"], about["C"], str(ledger.root), about))
    question = Question(name=sweep.name, question="", base=base, set={}, grid=[{"sweep": [sweep.name]}])
    return document_of(Plan(question, tuple(runs)))
