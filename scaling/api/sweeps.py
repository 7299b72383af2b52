"""Check a W&B sweep, register it, or run it on this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.api.words import words
from scaling.errors import ScalingError

if TYPE_CHECKING:
    import pandas

    from scaling.sweeps.check import Outlook
    from scaling.sweeps.file import Sweep as SweepFile
    from scaling.sweeps.trial import Trial

MISSING = ("failed", "refused")  # ends of a cell that are no result


@dataclass(frozen=True)
class Sweep:
    """A sweep that was checked. `outlook` is what it takes, `path` what W&B registered it as; the rest is of one that
    ran here: its trials, and the folder that has its points.csv and the output of its workers.
    """

    file: SweepFile
    outlook: Outlook
    path: str | None = None
    trials: Sequence[Trial] = ()
    folder: Path | None = None

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row a run that was trained, as in points.csv."""
        from scaling.sweeps.table import rows

        return rows(self.trials)

    @property
    def points(self) -> pandas.DataFrame:
        """The runs with their swept keys, losses, and every definition of N, D and C."""
        import pandas

        return pandas.DataFrame(self.rows)

    @property
    def best(self) -> Trial | None:
        """The finished trial with the best value of the sweep's metric."""
        done = [trial for trial in self.trials if trial.report and trial.values and trial.report.outcome == "finished"]
        return min(done, key=lambda trial: trial.values[-1]) if done and self.file.metric is not None else None

    @property
    def missing(self) -> list[Trial]:
        """The trials that came to no result."""
        return [trial for trial in self.trials if trial.report is None or trial.report.outcome in MISSING]

    def _repr_html_(self) -> str:
        return self.points.to_html()

    def __repr__(self) -> str:
        runs = "runs without end" if self.outlook.runs is None else f"{self.outlook.runs} runs"
        return f"Sweep({self.file.name}: {self.file.method}, {runs})"


def sweep(
    file: str,
    *overrides: str,
    local: bool = False,
    dry_run: bool = False,
    count: int | None = None,
    workers: int | None = None,
    checked: Callable[[Sweep], None] | None = None,
    ended: Callable[[Sweep, Trial, int], None] | None = None,
    **settings: Any,
) -> Sweep:
    """Check a sweep's file and register it with W&B, or with `local` train its runs on this machine.

    `checked` is called with the sweep before the first run, `ended` with each trial and the number that have ended.

        best = scaling.sweep("sweeps/learning_rate.yaml", local=True).best
    """
    from scaling.sweeps.file import capped, read

    for flag, value in (("count", count), ("workers", workers)):
        if value is not None and value < 1:
            raise ScalingError("expected a number from 1", key=f"--{flag}", value=value)
    if workers is not None and not local:
        raise ScalingError("workers are those of --local", key="--workers", fix="elsewhere, start an agent a node")
    given, planned = words(overrides, settings), capped(read(file), count)
    return run_here(planned, given, workers, checked, ended) if local else register(planned, given, dry_run)


def register(sweep: SweepFile, given: Sequence[str], dry_run: bool = False) -> Sweep:
    """The sweep checked, and registered where a W&B key is there."""
    from scaling.sweeps import check
    from scaling.sweeps.register import register

    ledger = [word for word in given if word.startswith("runs=")]
    others = [word for word in given if word not in ledger]
    if others:
        raise ScalingError(
            "a registered sweep's agents read the file alone", key=others[0], fix="write it into command"
        )
    outlook = check.check(sweep, check.read(sweep, ledger))
    return Sweep(sweep, outlook, None if dry_run else register(sweep))


def run_here(
    sweep: SweepFile,
    given: Sequence[str],
    workers: int | None = None,
    checked: Callable[[Sweep], None] | None = None,
    ended: Callable[[Sweep, Trial, int], None] | None = None,
) -> Sweep:
    from scaling.sweeps import check
    from scaling.sweeps.search import needs_end, searched

    needs_end(sweep)
    # With no server the runs are not shown anywhere, unless that is requested.
    given = ["log.wandb=disabled", *given]
    looks = check.read(sweep, given)
    # Only now what takes seconds to import.
    from scaling.studies.findings import write_points
    from scaling.sweeps import local
    from scaling.sweeps.trial import Trials

    at = local.places()
    if workers is not None:
        at = [at[number % len(at)] for number in range(workers)]
    folder = Path(looks.first["runs"]) / "sweeps" / f"{sweep.name}-{sweep.identity(given)[:8]}"
    with local.workers(sweep, at[: sweep.size or len(at)], folder / "workers.log") as started:
        outlook = check.check(sweep, looks)
        check.alone(sweep, looks.first)
        result = Sweep(sweep, outlook, folder=folder)
        if checked is not None:
            checked(result)
        done = 0

        def tell(trial: Trial) -> None:
            nonlocal done
            done += 1
            if ended is not None:
                ended(result, trial, done)

        trials = local.train(Trials(sweep, searched(sweep, folder), tell), given, started, folder / "workers.log")
    result = Sweep(sweep, outlook, None, trials, folder)
    if result.rows:
        write_points(result.rows, folder / "points.csv")
    return result
