"""W&B sweeps: check and register one, run it here, and bring runs back from W&B."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from scaling.base.errors import ScalingError, plural
from scaling.config.schema import PositiveInt
from scaling.studies.question import read as read_study
from scaling.sweeps.file import capped, read
from scaling.verbs.verb import PYTHON, RUNS, Result, verb

if TYPE_CHECKING:
    import pandas

    from scaling.sweeps.local import Trial

MOST_TRIALS = 20  # trials without a result that are named
MOST_RUNS = 5  # runs that are named as not complete, or as having two results


@dataclass(frozen=True, repr=False)
class Sweep(Result):
    """A sweep that was checked, registered, or run here. A sweep that ran here has trials, the rows of points.csv, and
    the folder of that file.
    """

    trials: Sequence[Trial] = ()
    folder: Path | None = None

    @property
    def points(self) -> pandas.DataFrame:
        """The runs with their swept keys, losses, and every definition of N, D and C."""
        import pandas

        return pandas.DataFrame(self.document if self.trials else ())

    @property
    def best(self) -> Trial | None:
        """The finished trial with the best value of the sweep's metric."""
        values = {
            trial.report.values[-1]: trial
            for trial in reversed(self.trials)
            if trial.report and trial.report.values and trial.report.outcome == "finished"
        }
        return values[min(values)] if values else None

    @property
    def missing(self) -> list[Trial]:
        """The trials without a result."""
        return [trial for trial in self.trials if trial.is_missing]


class Pull(Result):
    """The runs that were brought back from W&B into the ledger `folder`."""

    @property
    def points(self) -> pandas.DataFrame:
        """A row a run: its name, status, loss and every definition of N, D and C, as in points.csv."""
        import pandas

        return pandas.read_csv(self.document["points"])

    def _repr_html_(self) -> str:
        return self.points.to_html()


@verb
def sweep(
    file: str | Path,
    *overrides: str,
    local: bool = False,
    missing: bool = False,
    dry_run: bool = False,
    count: PositiveInt | None = None,
    workers: PositiveInt | None = None,
    executor: Literal["local", "slurm", "ray"] = "local",
    set: Mapping[str, Any] = {},
    progress: PYTHON[bool] = True,
    **settings: Any,
) -> Sweep:
    """Check a W&B sweep and register it, or run it on this machine with no server.

        scaling sweep sweeps/learning_rate.yaml --dry-run     check it and print its cost
        scaling sweep sweeps/learning_rate.yaml --local       the same runs on this machine; no account, no network
        scaling sweep sweeps/learning_rate.yaml               register it with W&B; `wandb agent` trains it
        scaling sweep sweeps/ladder.yaml --missing            train here what a grid's agents have left without a result

        best = scaling.sweep("sweeps/learning_rate.yaml", local=True).best

    With --local overrides hold for every run, and the same command continues a sweep that was stopped. The agents of a
    registered sweep read its file alone, so the only override there is `runs=`.

    Args:
        file: the file of a sweep, as `wandb sweep` reads it
        local: train its runs on this machine, with no server
        missing: as --local, for a grid whose agents are done: the cells that have no result in the ledger
        dry_run: check it and print its cost, nothing more, with --local too
        count: the most runs to train
        workers: processes of --local (default: one for each GPU or core)
        executor: where --local trains the cells of a grid or of random
    """
    local = local or missing
    where = [word for word in overrides if word.startswith("runs=")]
    if not local:
        for name, value in (("workers", workers), ("executor", None if executor == "local" else executor)):
            if value is not None:
                raise ScalingError("is an option of --local", key=f"--{name}", value=value, fix="add --local")
        if others := [word for word in overrides if word not in where]:
            what = "a registered sweep's agents read the file alone"
            raise ScalingError(what, key=others[0], fix="write it into command")
    checked = capped(read(file), count)
    if missing and checked.method != "grid":
        what = f"{checked.method} has no list of cells of which some could be missing"
        raise checked.config.error("method", what, "--local draws its own")
    if local and checked.size is None:
        what, fix = f"{checked.method} has no end of its own", "set run_cap in the file, or --count N"
        raise checked.config.error("method", what, fix)
    if executor != "local" and (checked.method == "bayes" or checked.hyperband is not None):
        key = "method" if checked.method == "bayes" else "early_terminate"
        raise checked.config.error(key, f"looks at results, and {executor} has all cells at once", "take local")

    from scaling.sweeps.check import check, described

    # With no server the runs are not shown anywhere, unless an override asks for it.
    given = ["log.wandb=disabled", *overrides] if local else where
    outlook, first = check(checked, given, local and not dry_run)
    about = described(checked, outlook)
    if dry_run:
        return Sweep({**outlook, "sweep": None}, [about])
    if not local:
        from scaling.sweeps.wandb_client import register

        path = register(checked)
        return Sweep({**outlook, "sweep": path}, [about, f"registered as {path}; on each node: wandb agent {path}"])
    from scaling.studies.progress import teller
    from scaling.sweeps.local import run
    from scaling.sweeps.search import name as name_of

    tell = teller(progress)
    tell(about)
    trials, table, folder = run(checked, Path(first["runs"]), given, workers, tell, executor, set)
    made = Sweep(table, trials=trials, folder=folder)
    outcomes = Counter(trial.report.outcome for trial in trials if trial.report is not None)
    lines = [", ".join(f"{number} {each}" for each, number in outcomes.items())]
    if checked.metric is not None and (best := made.best) is not None and best.report is not None:
        value = checked.metric.sign * best.report.values[-1]
        lines.append(f"best {checked.metric.name} {value:.4f}: {name_of(best.cell)}")
    if without := [f"without a result: {trial}" for trial in made.missing]:
        lines += _first(without, MOST_TRIALS)
        lines.append(f"the same command tries them again; the workers' output is in {folder}/workers.log")
    return replace(made, parts=[*lines, f"points: {folder}/points.csv"], code=int(bool(without)))


def _first(lines: Sequence[str], most: int) -> list[str]:
    return [*lines[:most], *([f"and {len(lines) - most} more"] if len(lines) > most else [])]


@verb
def pull(
    source: str,
    *overrides: str,
    to: str | Path | None = None,
    study: str | None = None,
    table: str | None = None,
    runs: str | Path = RUNS,
    progress: PYTHON[bool] = True,
    **settings: Any,
) -> Pull:
    """Bring runs back from W&B into a folder that tables, fits and reports read like any ledger.

        scaling pull me/scaling                       a project, into runs/pulled/me-scaling
        scaling pull me/scaling/abcd1234              one sweep of it
        scaling pull me/scaling --study quickstart    held to a study's plan: names, held-out runs, what is missing
        scaling pull me/scaling --table narang2021 size=tiny seeds=2

    The same command continues where it stopped, and fetches what is new. WANDB_BASE_URL names the server. Overrides
    are those that the study or the table was trained with.

    Args:
        source: ENTITY/PROJECT, or ENTITY/PROJECT/SWEEP
        to: the folder to write (default: pulled/ENTITY-PROJECT in the folder of the ledger)
        study: enter the plan of this study too
        table: enter the runs of this table as a study too
    """
    if study is not None and table is not None:
        raise ScalingError("runs are of a study or of a table", key="--table", value=table, fix="leave one of them out")
    if overrides and study is None and table is None:
        raise ScalingError("overrides are of a study or a table", key=overrides[0], fix="name it: --study or --table")
    planned, given = None, list(overrides)
    if study is not None or table is not None:
        from scaling.studies.plan import plan
        from scaling.tables.study import question
        from scaling.tables.table import read as read_table

        if table is not None:
            file, given = read_table(table).seeded(given)
            planned = plan(question(file, given), given)
        elif study is not None:
            planned = plan(read_study(study, None, given), given)

    from scaling.studies.progress import teller
    from scaling.sweeps.pull import pull

    found = pull(source, to, runs, planned, teller(progress))
    lines = [f"{plural(found['wandb_runs'], 'W&B run')}: {found['fetched']} fetched, {found['known']} unchanged"]
    if found["running"]:
        lines.append(f"{found['running']} still running: the same command brings them when they have ended")
    if found["foreign"]:
        lines.append(f"{found['foreign']} not ours, left out")
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in found["runs"].items())
    lines.append(f"{plural(sum(found['runs'].values()), 'run')}: {outcomes}")
    missing = [f"not complete: {name}: {'; '.join(reasons)}" for name, reasons in found["missing"].items()]
    lines += _first(missing, MOST_RUNS)
    lines += _first([f"another result: {reasons}" for reasons in found["differing"]], MOST_RUNS)
    return Pull(found, [*lines, f"points: {found['points']}"], code=0 if found["complete"] else 1)
