"""Show the runs of a ledger, free disk space that no run needs, and check the machine."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated, Any

from scaling.base.errors import ScalingError, plural, refuse
from scaling.base.json_lines import flat
from scaling.base.printing import byte_size, span, tabulate
from scaling.config import compose
from scaling.interop.location import SPEC, locate
from scaling.ledger import Ledger, space
from scaling.ledger.document import differences, text
from scaling.ledger.run import CIRCUMSTANCES
from scaling.ledger.store import printable
from scaling.training.wandb_settings import has_login
from scaling.verbs.train import Run
from scaling.verbs.verb import RUNS, Result, RunName, frame, verb

if TYPE_CHECKING:
    import pandas

WIDEST = 48  # letters of a name in a table
SOME = 4  # values of a long list that are printed
UNCOMPARED = ("run", "attempt", CIRCUMSTANCES)  # keys of a result that differ between equal runs
RUN_ID = re.compile(r"[0-9a-f]{4,16}")
PACKAGES = ("scaling", "torch", "lightning", "wandb", "datasets", "tokenizers", "numpy", "scipy", "pandas")
LEAST_FREE = 2 * 10**9
MARKS = {"good": "✓", "notice": "!", "bad": "✗"}


@dataclass(frozen=True, repr=False)
class Runs(Result):
    """The status of each run of a ledger; a study's runs are in the order of its plan."""

    ledger: Ledger = field(kw_only=True)

    @property
    def data(self) -> pandas.DataFrame:
        """One row for each run, with its status and each key of its config."""
        specs: dict[str, Mapping[str, Any]] = {}
        for run in (row["run"] for row in self.document):
            with suppress(ScalingError):  # a damaged spec is left out
                specs[run] = self.ledger.spec(run)
        table = [{**row, **flat(specs.get(row["run"], {})), "name": row["name"]} for row in self.document]
        return frame(table, None if table else ["run", "name", "state", "loss"])


@verb
def runs(study: Annotated[str | None, "the name of a study or a table"] = None, *, runs: str | Path = RUNS) -> Runs:
    """List runs.

        scaling runs                      every run of runs/
        scaling runs quickstart           the runs of a study, in the order of its plan

    A row has state, progress, loss, speed, host, and the last sign of life.
    """
    ledger = Ledger.open(runs)
    rows = [ledger.status(run) for run in (ledger.runs() if study is None else ledger.runs_of(study))]
    if study is not None:
        planned = {entry["run"]: printable(entry["name"]) for entry in ledger.plan(study)["runs"] if "name" in entry}
        rows = [replace(row, name=planned.get(row.run, row.name)) for row in rows]
    counts = ", ".join(f"{count} {state}" for state, count in Counter(row.state for row in rows).most_common())
    cells = [
        [
            row.run,
            row.name and row.name[:WIDEST],
            row.state,
            None if row.step is None else f"{row.step}/{row.steps or '?'}",
            row.loss,
            row.score,
            None if row.tokens_per_second is None else f"{row.tokens_per_second:,.0f}",
            row.host,
            None if row.seen is None else f"{span(max(time.time() - row.seen, 0))} ago",
            row.reason,
        ]
        for row in rows
    ]
    titles = ["run", "name", "state", "step", "loss", "score", "tokens/s", "host", "last sign", ""]
    title = plural(len(rows), "run") + (f": {counts}" if counts else "")
    return Runs([vars(row) for row in rows], [title, tabulate(titles, cells)], ledger=ledger)


@verb
def show(run: RunName, *, runs: str | Path = RUNS) -> Result:
    """Show one run: its state, result, attempts and settings, and its losses at the steps of its evaluations.

    scaling show 3fa9
    """
    ledger, name = _of_ledger(run, runs)
    row, result, spec, history = vars(ledger.status(name)), ledger.result(name), ledger.spec(name), ledger.history(name)
    attempts = [{"attempt": one.number, "start": one.start, "end": one.end} for one in ledger.attempts(name)]
    losses: dict[str, dict[int, Any]] = {"train": {}, "evaluate": {}}
    for entry in (entry for entry in history if entry.get("kind") in losses):
        losses[entry["kind"]][entry["step"]] = entry.get("loss")
    parts = [" · ".join(filter(None, (f"run {name}", row["name"], row["state"], row["reason"])))]
    if losses["evaluate"]:
        rows = [[step, losses["train"].get(step), loss] for step, loss in losses["evaluate"].items()]
        parts.append(tabulate(["step", "train loss", "held-out loss"], rows).text())
    parts += [] if result is None else [_section("result", result)]
    for attempt in attempts:
        start, end = attempt["start"], attempt["end"] or {}
        facts = {"host": start.get("host"), "started": start.get("time")}
        facts |= {key: end[key] for key in ("outcome", "reason", "differences") if end.get(key)}
        parts.append(_section(f"attempt {attempt['attempt']}", facts | ({"ended": end["time"]} if end else {})))
    document = {"row": row, "result": result, "attempts": attempts, "spec": spec, "history": history}
    return Result(document, ["\n\n".join([*parts, _section("spec", spec)])])


def _of_ledger(run: RunName, runs: str | Path) -> tuple[Ledger, str]:
    """The ledger of a run that is named, and the run's id."""
    folder = locate(run, runs)
    refuse(not (folder / SPEC).is_file(), "it is a model without a ledger", "name a run", file=folder)
    return Ledger.open(folder.parents[1]), folder.name


def _section(title: str, values: Mapping[str, Any]) -> str:
    """Keys and values as JSON, so that a terminal executes no control characters."""
    rows = [[f"  {text(key)[1:-1]}", _compact(value)] for key, value in flat(values).items()]
    return tabulate([title, ""], rows).text()


def _compact(value: Any) -> str:
    """A value as JSON; a long list as its beginning and its length."""
    if isinstance(value, list) and len(value) > SOME + 1:
        return f"[{', '.join(map(_compact, value[:SOME]))}, … {len(value)} values]"
    return text(value)


@verb
def diff(
    one: Annotated[str | Run, "a run or a config"],
    other: Annotated[str | Run, "another run or config"],
    *overrides: str,
    runs: str | Path = RUNS,
    **settings: Any,
) -> Result:
    """Show the differences of two runs or configs.

        scaling diff 3fa9 71c0                  two runs, by the beginnings of their ids
        scaling diff gpt2 llama size=tiny       two configs; overrides hold for both

    For finished runs, the results are compared too.
    """

    are_runs = [isinstance(each, Run) or RUN_ID.fullmatch(each) is not None for each in (one, other)]
    if overrides and all(are_runs):
        raise ScalingError("overrides are of a config, and these are runs", key=overrides[0], fix="leave it out")

    def document(named: str | Run) -> Mapping[str, Any]:
        if not isinstance(named, Run) and not RUN_ID.fullmatch(named):
            return compose.load(named, overrides).tree
        ledger, run = _of_ledger(named, runs)
        spec = {key: value for key, value in ledger.spec(run).items() if key != "name"}
        result = {key: value for key, value in (ledger.result(run) or {}).items() if key not in UNCOMPARED}
        return spec | ({"result": result} if result else {})

    changes = differences(document(one), document(other))
    rows = [row for key, pair in changes.items() for row in _rows(text(key)[1:-1], *pair)]
    return Result(changes, [tabulate(["key", "one", "other"], rows) if rows else "no difference"])


def _rows(key: str, left: Any, right: Any) -> list[list[str]]:
    """A difference as a row; for two lists of equal length, only the places that differ if they are few."""
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        places = [(f"{key}.{place}", *pair) for place, pair in enumerate(zip(left, right)) if pair[0] != pair[1]]
        if len(places) <= SOME:
            return [row for place in places for row in _rows(*place)]
    return [[key, *("–" if value is None else _compact(value) for value in (left, right))]]


@verb
def gc(
    *,
    free: Annotated[bool, "delete the files"] = False,
    weights: Annotated[bool, "include the final weights of finished runs"] = False,
    runs: str | Path = RUNS,
) -> Result:
    """List the files that no run needs any more; --free deletes them.

        scaling gc                        list them
        scaling gc --free --weights       delete them, and the final weights of finished runs

    The files are checkpoints of ended runs and of trunks whose branches have ended, and incomplete files of killed
    workers. Specs, logs and results stay. --weights adds the final weights that no other run needs.
    """
    ledger = Ledger.open(runs)
    waste, waiting = space.waste(ledger, weights)
    total = space.free(waste) if free else sum(item.bytes for item in waste)
    items, needed = ([{**vars(item), "path": str(item.path)} for item in some] for some in (waste, waiting))
    what = "freed" if free else "can be freed; --free does it" if items else "to free"
    notes = [item["path"] for item in items] + ["kept: other runs start from these weights"] * len(needed)
    rows = [[each["run"], byte_size(each["bytes"]), each["kind"], note] for each, note in zip(items + needed, notes)]
    title = f"{byte_size(total)} in {plural(len(items), 'place')} {what}"
    document = {"freed": free, "bytes": total, "items": items, "kept": needed}
    return Result(document, [title, tabulate(["run", "size", "kind", "path"], rows)])


def _found(topic: str, what: str, fix: str | None = None, *, bad: bool = False) -> dict[str, Any]:
    """One line of the screen; `fix` if an action is needed."""
    return {"topic": topic, "state": "bad" if bad else "notice" if fix else "good", "what": what, "fix": fix}


@verb
def doctor(*, runs: str | Path = RUNS) -> Result:
    """Check this machine: devices, threads, memory, disk, the ledger's folder, versions and W&B, on one screen.

    The exit code is 1 if a fault prevents runs from working.
    """
    findings = [*_machine(), *_devices(), *_folder(Path(runs)), _wandb()]
    rows = [[MARKS[row["state"]], row["topic"], "; ".join(filter(None, (row["what"], row["fix"])))] for row in findings]
    is_bad = any(row["state"] == "bad" for row in findings)
    return Result(findings, [tabulate(["", "topic", "found"], rows)], code=int(is_bad))


def _machine() -> Iterator[dict[str, Any]]:
    import platform
    from importlib import metadata

    installed = {}
    for package in PACKAGES:
        try:
            installed[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            yield _found("versions", f"{package} is not installed", f"pip install {package}", bad=True)
    listed = ", ".join(f"{package} {version}" for package, version in installed.items())
    yield _found("versions", f"Python {platform.python_version()}, {listed}")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    load, threads = os.getloadavg()[0], os.environ.get("OMP_NUM_THREADS", "")
    what = f"{plural(cores, 'core')} for this process, {platform.machine()}, load {load:.1f}"
    fix = "others are at work: small runs slow down many times over" if load > cores else None
    yield _found("processor", what, fix)
    what = f"OMP_NUM_THREADS={threads}" if threads else "OMP_NUM_THREADS is not set: the size of a run's model decides"
    is_right = not threads or (threads.isdecimal() and int(threads) <= cores)
    yield _found("threads", what, None if is_right else f"set it to at most {plural(cores, 'core')}")
    if "SC_AVPHYS_PAGES" in os.sysconf_names:
        page = os.sysconf("SC_PAGE_SIZE")
        total, free = (byte_size(os.sysconf(f"SC_{which}_PAGES") * page) for which in ("PHYS", "AVPHYS"))
        yield _found("memory", f"{total}, of which {free} are free")


def _devices() -> Iterator[dict[str, Any]]:
    try:
        import torch
    except ImportError as error:
        yield _found("devices", f"torch cannot be imported: {error}", bad=True)
        return
    from scaling.kernels.compiled import absent

    why = absent()
    fix = why and "small models train slower on the CPU without them: see docs/install.md"
    yield _found("kernels", why or "compiled for this processor", fix)
    for number in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(number)
        yield _found("devices", f"cuda:{number} {device.name}, {byte_size(device.total_memory)}")
    if torch.backends.mps.is_available():
        yield _found("devices", "mps")
    if not torch.cuda.device_count():
        lacks_cuda = shutil.which("nvidia-smi") is not None and torch.version.cuda is None
        fix = "this torch is built without CUDA; install one with it" if lacks_cuda else None
        yield _found("devices", f"the CPU alone, {torch.backends.cpu.get_cpu_capability()}", fix)


def _folder(folder: Path) -> Iterator[dict[str, Any]]:
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    try:
        with TemporaryFile(dir=there):  # permissions do not show what NFS, a quota or a full disk refuses
            pass
    except OSError as error:
        yield _found("runs", f"cannot write in {there}: {error.strerror}", bad=True)
        return
    free = shutil.disk_usage(there).free
    fix = "runs stop with code 74 when it is full; `scaling gc` frees some" if free < LEAST_FREE else None
    yield _found("disk", f"{byte_size(free)} free at {there}", fix)
    if there == folder.absolute():
        try:
            yield _found("runs", f"{plural(len(Ledger.open(folder).runs()), 'run')} in {folder}")
        except ScalingError as error:
            yield _found("runs", f"{folder}: {error.what}", error.fix)


def _wandb() -> dict[str, Any]:
    mode, has_key = os.environ.get("WANDB_MODE", "online"), bool(os.environ.get("WANDB_API_KEY"))
    if mode in ("offline", "disabled"):
        return _found("W&B", f"{mode} by WANDB_MODE")
    if has_key or has_login():
        return _found("W&B", f"a key in {'the environment' if has_key else '~/.netrc'}")
    return _found("W&B", "no key: runs are logged offline", "`wandb login` sets one")
