"""W&B sweeps: check, register or run a sweep, and fetch runs from W&B."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from scaling.base.errors import plural, refuse
from scaling.base.numbers import PositiveInt
from scaling.studies.question import read as read_study
from scaling.sweeps.file import capped, read, related
from scaling.verbs.verb import PYTHON, RUNS, Executor, Result, frame, verb

if TYPE_CHECKING:
    import pandas

    from scaling.sweeps.local import Trial

MOST_TRIALS = 20  # trials without a result that are named
MOST_RUNS = 5  # runs that are named as not complete, or as having two results


@dataclass(frozen=True, repr=False)
class Sweep(Result):
    """A sweep that was checked, registered, or run here. After a run it has trials, and the folder of points.csv."""

    trials: Sequence[Trial] = ()
    folder: Path | None = None

    @property
    def points(self) -> pandas.DataFrame:
        """The runs with their swept keys, losses, and every definition of N, D and C."""
        return frame(self.document if self.trials else ())

    @property
    def best(self) -> Trial | None:
        """The first finished trial with the best value of the sweep's metric."""
        finished = [trial for trial in self.trials if trial.outcome == "finished" and trial.value is not None]
        return min(finished, key=lambda trial: trial.value or 0.0, default=None)

    @property
    def missing(self) -> list[Trial]:
        """The trials without a result."""
        return [trial for trial in self.trials if trial.report is None]


class Pull(Result):
    """The runs that were fetched from W&B into the ledger `folder`."""

    @property
    def points(self) -> pandas.DataFrame:
        """One row for each run: its name, status, loss and every definition of N, D and C, as in points.csv."""
        import pandas

        return pandas.read_csv(self.document["points"])


@verb
def sweep(
    file: Annotated[str | Path, "the file of a sweep, as `wandb sweep` reads it"],
    *overrides: str,
    local: Annotated[bool, "train the runs on this machine, without a server"] = False,
    missing: Annotated[bool, "as --local, but only the cells of a grid that have no result"] = False,
    dry_run: Annotated[bool, "only check the sweep and print its cost, also with --local"] = False,
    count: Annotated[PositiveInt | None, "take only the first N runs"] = None,
    workers: Annotated[PositiveInt | None, "processes of --local (default: one for each GPU or core)"] = None,
    executor: Executor = "local",
    set: Mapping[str, Any] = {},
    progress: PYTHON[bool] = True,
    **settings: Any,
) -> Sweep:
    """Check a W&B sweep and register it, or run it on this machine without a server.

        scaling sweep sweeps/learning_rate.yaml --dry-run     check it and print its cost
        scaling sweep sweeps/learning_rate.yaml --local       the same runs on this machine; no account, no network
        scaling sweep sweeps/learning_rate.yaml               register it with W&B; `wandb agent` trains it
        scaling sweep sweeps/ladder.yaml --missing            train the cells of a grid that have no result

    With --local overrides hold for every run, and the same command continues a sweep that was stopped. The agents of a
    registered sweep read only its file, so there `runs=` is the only override.
    """
    local = local or missing
    where = [word for word in overrides if word.startswith("runs=")]
    for name, value in (("workers", workers), ("executor", executor), ("set", dict(set) or None)):
        is_lost = not local and value not in (None, "local")
        refuse(is_lost, "is an option of --local", "add --local", key=f"--{name}", value=value)
    sweep = capped(read(file), count)
    for word in overrides:
        key = word.partition("=")[0]
        what = "a registered sweep's agents read the file alone"
        refuse(not local and word not in where, what, "write it into command", key=word)
        swept = next((swept for swept in sweep.parameters if related(swept, key)), None)
        refuse(swept, f"the sweep gives {swept} its values", "leave it out", key=key, value=word)
    refuse_at, needs_results = sweep.config.refuse, sweep.method == "bayes" or sweep.hyperband is not None
    refuse_at(missing and sweep.method != "grid", "method", f"{sweep.method} has no list of cells", "take --local")
    what, fix = f"{sweep.method} never ends by itself", "set run_cap in the file, or --count N"
    refuse_at(local and sweep.size is None, "method", what, fix)
    has_target = local and "target" in (sweep.config.tree.get("metric") or {})
    refuse_at(has_target, "metric.target", "here a sweep goes on to its end", "leave it out, or set run_cap")
    what = f"it needs results to choose cells, and {executor} submits all cells at once"
    key = "method" if sweep.method == "bayes" else "early_terminate"
    refuse_at(executor != "local" and needs_results, key, what, "take local")

    from scaling.sweeps.cells import check, described

    # With no server the runs are not shown anywhere, unless an override asks for it.
    words = ["log.wandb=disabled", *overrides] if local else where
    outlook, first = check(sweep, words, local and not dry_run)
    about = described(sweep, outlook)
    if dry_run:
        return Sweep({**outlook, "sweep": None}, [about])
    if not local:
        from scaling.sweeps.wandb_client import register

        path = register(sweep)
        return Sweep({**outlook, "sweep": path}, [about, f"registered as {path}; on each node: wandb agent {path}"])
    from scaling.studies.progress import announcer
    from scaling.sweeps.cells import name as name_of
    from scaling.sweeps.local import run

    listener = announcer(progress)
    listener(about)
    trials, table, folder = run(sweep, Path(first["runs"]), words, workers, listener, executor, set)
    result = Sweep(table, trials=trials, folder=folder)
    outcomes = Counter(trial.outcome for trial in trials)
    lines = [", ".join(f"{number} {each}" for each, number in outcomes.items())]
    if sweep.metric is not None and (best := result.best) is not None and best.value is not None:
        lines.append(f"best {sweep.metric.name} {sweep.metric.sign * best.value:.4f}: {name_of(best.cell)}")
    if result.missing:
        lines += _first([f"without a result: {trial}" for trial in result.missing], MOST_TRIALS)
        lines.append(f"the same command tries them again; the workers' output is in {folder}/workers.log")
    return replace(result, parts=[*lines, f"points: {folder}/points.csv"], code=int(bool(result.missing)))


def _first(lines: Sequence[str], most: int) -> list[str]:
    return [*lines[:most], *([f"and {len(lines) - most} more"] if len(lines) > most else [])]


@verb
def pull(
    source: Annotated[str, "ENTITY/PROJECT, or ENTITY/PROJECT/SWEEP"],
    *overrides: str,
    to: Annotated[str | Path | None, "the folder to write (default: LEDGER/pulled/ENTITY-PROJECT)"] = None,
    study: Annotated[str | None, "also enter the plan of this study"] = None,
    table: Annotated[str | None, "also enter the runs of this table as a study"] = None,
    runs: str | Path = RUNS,
    progress: PYTHON[bool] = True,
    **settings: Any,
) -> Pull:
    """Fetch runs from W&B into a folder that tables, fits and reports read as a ledger.

        scaling pull me/scaling                       a project, into runs/pulled/me-scaling
        scaling pull me/scaling/abcd1234              one sweep of the project
        scaling pull me/scaling --study quickstart    with a study's plan: names, held-out and missing runs
        scaling pull me/scaling --table narang2021 size=tiny seeds=2

    The same command continues after a stop, and fetches new runs. WANDB_BASE_URL names the server. Give the overrides
    with which the study or the table was trained.
    """
    is_planned, first = study is not None or table is not None, next(iter(overrides), None)
    what, fix = "it does not combine with --study", "leave one of them out"
    refuse(study is not None and table is not None, what, fix, key="--table", value=table)
    what, fix = "overrides need a study or a table", "name it: --study or --table"
    refuse(first is not None and not is_planned, what, fix, key=first)
    planned, words = None, list(overrides)
    if is_planned:
        from scaling.studies.plan import plan
        from scaling.tables.study import question
        from scaling.tables.table import read as read_table

        if table is not None:
            file, words = read_table(table).seeded(words)
        planned = plan(read_study(str(study), None, words) if table is None else question(file, words), words)

    from scaling.studies.progress import announcer
    from scaling.sweeps.pull import pull

    pulled = pull(source, to, runs, planned, announcer(progress))
    lines = [f"{plural(pulled['wandb_runs'], 'W&B run')}: {pulled['fetched']} fetched, {pulled['known']} unchanged"]
    if pulled["running"]:
        lines.append(f"{pulled['running']} still running: the same command brings them when they have ended")
    lines += [f"{pulled['foreign']} not ours, left out"] if pulled["foreign"] else []
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in pulled["runs"].items())
    lines.append(f"{plural(sum(pulled['runs'].values()), 'run')}: {outcomes}")
    missing = [f"not complete: {name}: {'; '.join(reasons)}" for name, reasons in pulled["missing"].items()]
    lines += _first(missing, MOST_RUNS) + _first([f"another result: {one}" for one in pulled["differing"]], MOST_RUNS)
    return Pull(pulled, [*lines, f"points: {pulled['points']}"], code=0 if pulled["complete"] else 1)
