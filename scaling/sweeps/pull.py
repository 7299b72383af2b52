"""Pull: runs come back from W&B, whole, into a ledger of their own, which tables, fits and reports read like any other.

    store/<run>/log.jsonl       an attempt a W&B run that has ended; its start states which it shows, and how far
    store/<run>/result.json     of the attempt that is kept: the first that has a result
    studies/<sweep>/plan.json   the runs of a sweep, where its command is ours
    points.csv                  a row a run

A pull that is stopped at any moment loses nothing: the next one continues.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.base import atomic
from scaling.base.errors import ScalingError, disk, refuse
from scaling.base.json_lines import put
from scaling.config.document import Config
from scaling.config.schema import walk
from scaling.ledger import RESULTS, Ledger, is_ledger, run_id
from scaling.ledger.document import SPELLED, differences, seal, stamp
from scaling.ledger.identity import RUN_ID
from scaling.ledger.run import INTERRUPTIONS, LOG
from scaling.studies.question import Question
from scaling.sweeps import file
from scaling.sweeps.cells import name as named
from scaling.sweeps.cells import point_columns
from scaling.sweeps.wandb_client import connect, patient
from scaling.training.point import canonical, plain

if TYPE_CHECKING:
    import wandb

    from scaling.studies.plan import Plan

LISTED = 100  # runs of one page of the list
AT_ONCE = 8  # histories under way
MARK = "pulled"  # a file that only pulled ledgers have
# Keys of a W&B config besides the spec's.
OWN = ("run", "attempt", "point", "study", "row", "sweep", "_wandb", "wandb_version")
STEP = "trainer/global_step"  # the run's step, as Lightning logs it; two of W&B's own are one of these
KINDS = ("train", "evaluate")  # of entries
ENDS = {"finished": "stopped", "failed": "failed", "crashed": "stopped", "killed": "stopped", "preempted": "stopped"}

Row = Mapping[str, Any]


class WandbRun:
    """A W&B run, as the `client` has it, without its history, whose last row is `last`."""

    def __init__(self, path: str, client: Any):
        self.path, self.client = path, client  # entity/project/id
        self.config, self.summary = client.config, dict(client.summary_metrics)
        self.last = max((client.history_keys or {}).get("lastStep", -1), self.summary.get("_step", -1))
        # It changes when there is more to fetch.
        self.version = f"{client.state} {client.history_line_count} {self.last} {client.heartbeat_at or ''}"

    @property
    def run(self) -> str | None:
        """The run of the ledger that it shows; None where it is not one of ours."""
        run = self.config.get("run")
        point = self.config.get("point")
        is_run = isinstance(run, str) and RUN_ID.fullmatch(run)
        return run if is_run and isinstance(point, Mapping) and {"N", "D", "C"} <= {*point} else None

    @property
    def outcome(self) -> str | None:
        """The outcome in the ledger's words; None while the run goes on."""
        reported, state = self.summary.get("outcome"), self.client.state
        is_known = reported in INTERRUPTIONS or (reported in RESULTS and state != "running")
        return reported if is_known else ENDS.get(state)

    @property
    def point(self) -> dict[str, Any]:
        """The columns of the run in a table or a law beside its loss, as the ledger's runs have them."""
        return canonical(self.config["point"])

    def drawn(self, sweep: file.Sweep | None) -> tuple[str, dict[str, Any]]:
        """Its name, as `--local` names it where all is known and else as W&B does, and what the sweep drew for it."""
        parameters = () if sweep is None else sweep.parameters
        known = {**dict(walk(self.config)), **self.config}  # W&B keeps what it drew under the dotted key
        values = {key: known[key] for key in parameters if known.get(key) is not None}
        return named(values) if values and len(values) == len(parameters) else self.client.name, values


Attempts = Sequence[WandbRun]  # of one run of the ledger, oldest first


def pull(
    name: str,
    to: str | Path | None,
    runs: str | Path,
    plan: Plan | None = None,
    announce: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Bring the runs of a project or of a sweep into a ledger, and write their points.csv; with a plan they are those
    of its study. The ledger is `to`, or a folder of its own in the folder `runs`.

    Return the document of `scaling pull --json`.
    """
    parts = _parts(name)
    what = "expected ENTITY/PROJECT or ENTITY/PROJECT/SWEEP"
    refuse(len(parts) > 3 or not all(parts), what, key="PROJECT", value=name)
    api = connect()
    if len(parts) == 1:
        parts = [os.environ.get("WANDB_ENTITY") or patient(lambda: api.default_entity) or "", *parts]
    project = "/".join(parts[:2])
    ledger = _ledger(Path(to or Path(runs, "pulled", "-".join(parts))))
    shown = _listed(api, project, *parts[2:])
    ours = [run for run in shown if run.run is not None]
    found: dict[str, list[WandbRun]] = {}  # the W&B runs that show one run: its attempts, or another machine's
    for run in ours:
        found.setdefault(str(run.run), []).append(run)
    trained = {run: all_of for run, all_of in found.items() if any(each.client.job_type != "trunk" for each in all_of)}
    refuse(not trained and plan is None, "none of its runs were trained by scaling", key="PROJECT", value=name)
    seen = _seen(ledger)
    ended = {run: [each for each in attempts if each.outcome is not None] for run, attempts in found.items()}
    stale = [run for run in found if any(seen.get(each.path) != (each.version, []) for each in ended[run])]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        logs = pool.map(_log, map(ended.__getitem__, stale))
        try:
            for done, (run, log) in enumerate(zip(stale, logs, strict=True), start=1):
                _write(ledger.folder(run) / LOG, log)
                if done == len(stale) or done % 50 == 0:
                    announce(f"{done} of {len(stale)} histories")
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # a full disk does not wait for the other histories
    paths = {run.path for run in ours}
    lacking = {path: missing for path, (_, missing) in _seen(ledger).items() if missing and path in paths}
    differing = [sentence for run in found for sentence in _conclude(ledger, found[run], ended[run])]
    sweeps: dict[str | None, file.Sweep] = {}  # without those whose command is not ours
    for each in {run.client.sweep_name for run in ours if run.client.sweep_name}:
        try:
            tree = patient(lambda each=each: api.sweep(f"{project}/{each}").config)
            sweeps[each] = file.of(each, Config(dict(tree), {}))
        except ScalingError as error:
            if error.code == 1:  # no answer of the server, who may be busy
                raise
            continue
        _write(ledger.study_folder(each) / "plan.json", seal(_document(ledger, found, sweeps[each])))
    fetched, running = sum(len(ended[run]) for run in stale), sum(run.outcome is None for run in ours)
    kept = [_kept(attempts) for attempts in trained.values()]
    return {
        "folder": str(ledger.root),
        "points": str(_write_points(ledger, trained, sweeps, plan)),
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


def _parts(name: str) -> list[str]:
    """ENTITY, PROJECT and SWEEP of a path or of the address of a page, as https://wandb.ai/me/scaling/sweeps/abcd1234."""
    if "://" not in name:
        return name.strip("/").split("/")
    parts = re.split("[?#]", name)[0].split("/")[3:]
    return [*parts[:2], *(parts[3:4] if parts[2:3] == ["sweeps"] else [])] or [""]


def _listed(api: wandb.Api, project: str, sweep: str | None = None) -> list[WandbRun]:
    """The runs, without their histories, the oldest first; compared with the server's own count."""
    if sweep is not None:
        patient(lambda: api.sweep(f"{project}/{sweep}"))  # of one that is unknown, no run would be listed
    runs = patient(lambda: api.runs(project, {"sweep": sweep} if sweep else {}, per_page=LISTED, lazy=False))
    listed = {f"{project}/{run.id}": run for run in patient(lambda: list(runs))}
    if len(listed) < len(runs):
        raise ScalingError(f"W&B lists {len(listed)} of {len(runs)} runs", fix="try again", code=1)
    shown = [WandbRun(path, run) for path, run in listed.items()]
    return sorted(shown, key=lambda run: (run.client.created_at, run.path))


def _ledger(folder: Path) -> Ledger:
    """The ledger of a folder that pulls write: it holds what W&B has, so any of it may be written again."""
    is_trained = is_ledger(folder) and not (folder / MARK).exists()
    refuse(is_trained, "holds runs that were trained, not pulled", "name another: --to", file=folder)
    with disk("cannot write there"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MARK).touch()
    return Ledger.create(folder)


def _kept(attempts: Attempts) -> WandbRun | None:
    """As in the ledger, the first result is kept; None where there is none."""
    return next((run for run in attempts if run.outcome in RESULTS), None)


def _seen(ledger: Ledger) -> dict[str, tuple[str, list[str]]]:
    """By the path of each W&B run in the ledger: how far it was seen, and what its history lacks."""
    records = [record for run in ledger.runs() for record in ledger.attempts(run)]
    whole = [(one.start, one.end) for one in records if one.end is not None and "wandb" in one.start]
    return {start["wandb"]: (start["seen"], end["missing"]) for start, end in whole}


def _log(ended: Attempts) -> bytes:
    """The log of a run, from the histories of the attempts that have ended."""
    log = []
    for number, each in enumerate(ended, start=1):
        scan = each.client.scan_history
        rows = patient(lambda scan=scan: sorted(scan(use_cache=False), key=lambda row: row["_step"]))
        about = {"attempt": number, "time": each.client.created_at}
        log.append({"kind": "start", **about, "wandb": each.path, "seen": each.version})
        log += entries(rows)
        end = {"outcome": each.outcome, "reason": each.summary.get("reason"), "missing": _missing(rows, each)}
        log.append({"kind": "end", **about, **end})
    return b"".join(map(stamp, log))


def _missing(history: Sequence[Row], shown: WandbRun) -> list[str]:
    """A sentence on each part that a history from W&B lacks; empty where it is complete."""
    sentences, lines = [], shown.client.history_line_count
    if lines is not None and len(history) < lines:
        sentences.append(f"{len(history)} of {lines} rows")
    last = history[-1]["_step"] if history else None
    if shown.last >= 0 and (last is None or last < shown.last):
        sentences.append(f"its rows end at {last}, and W&B's at {shown.last}")
    return sentences


def entries(history: Iterable[Row]) -> Iterator[dict[str, Any]]:
    """A history as the ledger logs it: `train/loss` in a row is `loss` in the entry of kind `train`."""
    for row in history:
        about = {"step": _number(row.get(STEP, row["_step"])), "tokens": _number(row.get("tokens"))}
        for kind in KINDS:
            values = {key.removeprefix(f"{kind}/"): value for key, value in row.items() if key.startswith(f"{kind}/")}
            if values:
                yield {"kind": kind, **about, **_opened({key: _number(value) for key, value in values.items()})}


def _number(value: Any) -> Any:
    """A value as the ledger spells it; W&B writes what is not finite as text."""
    return plain(SPELLED.get(value, value) if isinstance(value, str) else value)


def _conclude(ledger: Ledger, attempts: Attempts, ended: Attempts) -> list[str]:
    """Write a run's spec, where W&B has all of it, and the kept result; a sentence for each other result."""
    first, kept = attempts[0], _kept(attempts)
    folder, run_spec, is_whole = ledger.folder(str(first.run)), spec(first.config), False
    with suppress(ScalingError):
        is_whole = run_id(run_spec) == first.run
    if is_whole:
        ledger.add(run_spec)
    folder.mkdir(parents=True, exist_ok=True)
    if kept is None:
        return []
    about = {"run": first.run, "attempt": 1 + ended.index(kept), "circumstances": {"wandb": kept.path}}
    _write(folder / "result.json", seal({**about, **_result(kept)}))
    return [
        f"{key} is {here!r} in {kept.path} and {there!r} in {other.path}"
        for other in attempts
        if other.outcome in RESULTS
        for key, (here, there) in differences(_result(kept), _result(other)).items()
    ]


def spec(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a run computes, of its W&B config: without what W&B adds, the dotted keys opened.

    A section that is there whole has been resolved by the run; the dotted keys of it are what a sweep asked for, and
    say nothing more. Where a sweep chose a whole section by name (`size: ladder/30k`), W&B keeps the name, and the spec
    is not whole, which its hash shows.
    """
    return {key: value for key, value in _opened(config).items() if key not in OWN}


def _opened(values: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys as nested ones; a section that is there whole has what it has."""
    opened = {key: value for key, value in values.items() if "." not in key}
    sections = set(opened)
    for key, value in values.items():
        if "." in key and key.partition(".")[0] not in sections:
            put(opened, key, value)
    return opened


def _result(shown: WandbRun) -> dict[str, Any]:
    """The run's result as the ledger has it, from its point and the last value of every metric."""
    about, summary = shown.point, shown.summary
    last = {
        key.removeprefix("evaluate/"): _number(value) for key, value in summary.items() if key.startswith("evaluate/")
    }
    compute = {key.removeprefix("C_"): value for key, value in about.items() if key.startswith("C_")}
    compute.pop("definition", None)
    return {
        "outcome": shown.outcome,
        **_opened(last),
        **({"score": _number(summary["score"])} if "score" in summary else {}),
        "loss": _number(summary.get("loss")),
        "step": _number(summary.get("step")),
        "tokens": about["D"] if shown.outcome == "finished" else _number(summary.get("tokens")),
        "N": {"non_embedding": about["N"], "total": about.get("N_total")},
        "C": {"exact": about["C"], **compute},
        **({"reason": summary["reason"]} if summary.get("reason") else {}),
    }


def _write(path: Path, content: bytes) -> None:
    if not path.exists() or path.read_bytes() != content:
        with disk("cannot write a run"):
            atomic.write(path, content)


def _write_points(
    ledger: Ledger, found: Mapping[str, Attempts], sweeps: Mapping[str | None, file.Sweep], plan: Plan | None
) -> Path:
    """points.csv: a row a run, as a study or a sweep writes it."""
    from scaling.studies.findings import row, rows, write_points
    from scaling.studies.plan import enter  # takes seconds to import, and mistakes come first

    if plan is None:
        table = []
        for run, attempts in found.items():
            label, cell = attempts[0].drawn(sweeps.get(attempts[0].client.sweep_name))
            table.append(row(run, label, ledger.result(run), point_columns(cell, attempts[0].point)))
        table.sort(key=lambda row: (row["name"], row["run"]))  # in whatever order the server has them
    else:
        enter(ledger, plan)
        table = rows(ledger, plan)
    path = ledger.root / "points.csv"
    write_points(table, path)
    return path


def _document(ledger: Ledger, found: Mapping[str, Attempts], sweep: file.Sweep) -> dict[str, Any]:
    """The sweep as a study of the ledger: for each run the words that it was trained with; tables find rows by it."""
    from scaling.studies.plan import Plan, Run, document_of

    base = next((word for word in sweep.words if "=" not in word), "")
    words = [word for word in sweep.words if "=" in word]
    runs = []
    for run, attempts in found.items():
        shown = next((shown for shown in attempts if shown.client.sweep_name == sweep.name), None)
        if shown is not None:
            about, (label, cell) = shown.point, shown.drawn(sweep)
            overrides = (*words, *(f"{key}={value}" for key, value in cell.items()))
            runs.append(Run(run, label, base, overrides, False, about["S"], about["C"], str(ledger.root), about))
    question = Question(name=sweep.name, question="", base=base, set={}, grid=[{"sweep": [sweep.name]}])
    return document_of(Plan(question, tuple(runs)))
