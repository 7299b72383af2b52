"""Look at the runs of a ledger: list them, show one, compare two, and free the disk space that none needs any more."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.base.errors import ScalingError, plural
from scaling.base.printing import byte_size, columns, span
from scaling.config import compose as config
from scaling.ledger import Ledger, space
from scaling.ledger.document import differences, flat, text
from scaling.ledger.run import CIRCUMSTANCES
from scaling.ledger.store import printable
from scaling.verbs.train import Run
from scaling.verbs.verb import RUNS, Result, RunName, verb

if TYPE_CHECKING:
    import pandas

WIDEST = 48  # letters of a name in a table
SOME = 4  # values of a long list that are printed
UNCOMPARED = ("run", "attempt", CIRCUMSTANCES)  # keys of a result that differ between equal runs
RUN_ID = re.compile(r"[0-9a-f]{4,16}")


@dataclass(frozen=True, repr=False)
class Runs(Result):
    """The status of each run of a ledger; of a study in the order of its plan."""

    ledger: Ledger = field(kw_only=True)

    @property
    def data(self) -> pandas.DataFrame:
        """A row a run, with its status and each key of its config."""
        import pandas

        specs: dict[str, Mapping[str, Any]] = {}
        for run in (row["run"] for row in self.document):
            with suppress(ScalingError):  # a damaged spec is left out
                specs[run] = self.ledger.spec(run)
        table = [{**row, **flat(specs.get(row["run"], {})), "name": row["name"]} for row in self.document]
        return pandas.DataFrame(table, columns=None if table else ["run", "name", "state", "loss"])


@verb
def runs(study: str | None = None, *, runs: str | Path = RUNS) -> Runs:
    """List runs: state, progress, loss, speed, host, and the last sign of life.

        scaling runs                      every run of runs/
        scaling runs quickstart           the runs of a study, in the order of its plan

        scaling.runs("quickstart").data   a DataFrame with the status and each key of the config

    Args:
        study: the name of a study or a table
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
    return Runs([vars(row) for row in rows], [title, (titles, cells)], ledger=ledger)


@verb
def show(run: RunName, *, runs: str | Path = RUNS) -> Result:
    """Show one run: its state, result, attempts and settings, and its losses at the steps of its evaluations.

        scaling show 3fa9                 the run whose id begins so

    Args:
        run: the beginning of a run's id
    """
    ledger = Ledger.open(runs)
    name = ledger.find(Path(run).name)
    row, result, spec, history = vars(ledger.status(name)), ledger.result(name), ledger.spec(name), ledger.history(name)
    attempts = [{"attempt": one.number, "start": one.start, "end": one.end} for one in ledger.attempts(name)]
    train, evaluated = (
        {entry["step"]: entry.get("loss") for entry in history if entry.get("kind") == kind}
        for kind in ("train", "evaluate")
    )
    parts = [" · ".join(filter(None, (f"run {name}", row["name"], row["state"], row["reason"])))]
    if evaluated:
        rows = [[step, train.get(step), loss] for step, loss in evaluated.items()]
        parts.append(columns(["step", "train loss", "held-out loss"], rows))
    parts += [] if result is None else [_section("result", result)]
    for attempt in attempts:
        end = {key: value for key, value in (attempt["end"] or {}).items() if value}
        known = {"host": attempt["start"].get("host"), "started": attempt["start"].get("time")}
        known |= {key: end[key] for key in ("outcome", "reason", "differences") if key in end}
        parts.append(_section(f"attempt {attempt['attempt']}", known | ({"ended": end["time"]} if end else {})))
    document = {"row": row, "result": result, "attempts": attempts, "spec": spec, "history": history}
    return Result(document, ["\n\n".join([*parts, _section("spec", spec)])])


def _section(title: str, values: Mapping[str, Any]) -> str:
    """Keys and values as JSON, which cannot carry what a terminal would obey."""
    return columns([title, ""], [[f"  {text(key)[1:-1]}", _compact(value)] for key, value in flat(values).items()])


def _compact(value: Any) -> str:
    """A value as JSON; of a long list its beginning and its length."""
    if isinstance(value, list) and len(value) > SOME + 1:
        return f"[{', '.join(map(_compact, value[:SOME]))}, … {len(value)} values]"
    return text(value)


@verb
def diff(one: str | Run, other: str | Run, *overrides: str, runs: str | Path = RUNS, **settings: Any) -> Result:
    """Show what two runs or configs differ in; finished runs are compared in their results as well.

        scaling diff 3fa9 71c0                  two runs, by the beginnings of their ids
        scaling diff gpt2 llama size=tiny       two configs, each with what is laid over it

    Args:
        one: a run or a config
        other: another
    """

    def document(named: str | Run) -> Mapping[str, Any]:
        name = named.id if isinstance(named, Run) else named
        if not RUN_ID.fullmatch(name):
            return config.load(name, overrides).tree
        ledger = Ledger.open(runs)
        run = ledger.find(name)
        spec = {key: value for key, value in ledger.spec(run).items() if key != "name"}
        result = {key: value for key, value in (ledger.result(run) or {}).items() if key not in UNCOMPARED}
        return spec | ({"result": result} if result else {})

    found = differences(document(one), document(other))
    rows = [row for key, pair in found.items() for row in _rows(text(key)[1:-1], *pair)]
    return Result(found, [(["key", "one", "other"], rows) if rows else "no difference"])


def _rows(key: str, left: Any, right: Any) -> list[list[str]]:
    """A difference as a row; of two lists of one length, the places that differ where these are few."""
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        places = [(f"{key}.{place}", *pair) for place, pair in enumerate(zip(left, right)) if pair[0] != pair[1]]
        if len(places) <= SOME:
            return [row for place in places for row in _rows(*place)]
    return [[key, *("–" if value is None else _compact(value) for value in (left, right))]]


@verb
def gc(*, free: bool = False, weights: bool = False, runs: str | Path = RUNS) -> Result:
    """List the files that no run needs any more; --free deletes them.

        scaling gc                        what it would free
        scaling gc --free --weights       free it, and the final weights of every finished run

    Freed are checkpoints of runs that are done and of trunks whose branches all are, and what killed workers left.
    Specs, logs and results always stay. The final weights of finished runs stay, since export and generate need them;
    --weights frees them too. Weights that another run starts from stay as long as that run has no result, or its
    checkpoints hold only what it trained.

    Args:
        free: do it, instead of saying what would be done
        weights: also the final weights of finished runs
    """
    ledger = Ledger.open(runs)
    waste, kept = space.waste(ledger, weights)
    total = space.free(waste) if free else sum(item.bytes for item in waste)
    items, needed = ([{**vars(item), "path": str(item.path)} for item in some] for some in (waste, kept))
    what = "freed" if free else "can be freed; --free does it" if items else "to free"
    notes = [item["path"] for item in items] + ["kept: other runs start from these weights"] * len(needed)
    rows = [[each["run"], byte_size(each["bytes"]), each["kind"], note] for each, note in zip(items + needed, notes)]
    title = f"{byte_size(total)} in {plural(len(items), 'place')} {what}"
    document = {"freed": free, "bytes": total, "items": items, "kept": needed}
    return Result(document, [title, (["run", "size", "kind", "path"], rows)])
