"""Train a run, look at runs, and load what they trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling import config
from scaling.api.model import Model, load
from scaling.api.words import resolved
from scaling.config import Config
from scaling.errors import ScalingError

if TYPE_CHECKING:
    import pandas
    from lightning.pytorch import Callback
    from lightning.pytorch.loggers import Logger

    from scaling.ledger import Ledger, Row
    from scaling.training.run import Tell

RUNS = "runs"
"""The ledger's folder, unless another is named; as in defaults.yaml."""


@dataclass(frozen=True)
class Run:
    """A run of a ledger, in the folder `path`. `already`: it was finished before it was asked for.

    `differences` is of a run that was trained again: each key that differs from the kept result, with both
    values.
    """

    path: Path
    already: bool = False
    differences: Mapping[str, Any] | None = None

    @property
    def id(self) -> str:
        return self.path.name

    @cached_property
    def _ledger(self) -> Ledger:
        from scaling.ledger import Ledger

        return Ledger.open(self.path.parents[1])

    @cached_property
    def spec(self) -> Mapping[str, Any]:
        """All that decides what the run computes."""
        return self._ledger.spec(self.id)

    @property
    def state(self) -> str:
        """`finished`, `running`, `diverged`, …"""
        return self._ledger.status(self.id).state

    @property
    def result(self) -> Mapping[str, Any] | None:
        """The result as result.json holds it; None while there is none."""
        return self._ledger.result(self.id)

    @property
    def loss(self) -> float | None:
        """The final held-out loss in nats per token; None while there is none, or where the run diverged."""
        return None if self.result is None else self.result["loss"]

    @property
    def log(self) -> pandas.DataFrame:
        """What the run logged, a row an entry: training losses (`kind` is `train`) and evaluations (`evaluate`)."""
        import pandas

        return pandas.DataFrame(self._ledger.history(self.id))

    def model(self, device: str | None = None) -> Model:
        """The model with the last weights that the run saved."""
        return load(self.path, device=device)

    def __repr__(self) -> str:
        loss = "" if self.loss is None else f", loss {self.loss:.4f}"
        return f"Run({self.id}, {self.state}{loss})"


def train(
    model: str | None = None,
    *overrides: str,
    overlays: tuple[str, ...] = (),
    extend: str | None = None,
    again: bool = False,
    progress: bool = True,
    callbacks: Sequence[Callback] = (),
    loggers: Sequence[Logger] = (),
    **settings: Any,
) -> Run:
    """Train one run to its end, or resume it; a finished run is returned unchanged.

    `model` names a model, a row's table or a file; overrides are words as on the command line (`"size=tiny"`) or
    keywords (`data="python"`, `tokens="5M"`, `optimizer__lr=1e-3`). `again` trains a finished run again and compares.
    Without `progress` nothing is printed.
    Callbacks and loggers of Lightning join the training: callbacks get `outputs["loss"]` of each update, loggers each
    entry of the run's log.

        run = scaling.train("decoder", "size=ladder/30k", data="python", tokens="5M")
    """
    composed = resolved(model, overrides, settings, overlays, extend)
    return train_config(composed, again=again, progress=progress, callbacks=callbacks, loggers=loggers)


def train_config(
    given: Config,
    *,
    again: bool = False,
    progress: bool = True,
    callbacks: Sequence[Callback] = (),
    loggers: Sequence[Logger] = (),
) -> Run:
    """The run that a resolved config describes, trained."""
    from scaling.training.values import checked

    given = checked(given)

    from scaling.training.experiment import assemble

    assembled = assemble(given)  # what is wrong with it is reported before Lightning is imported, which takes seconds
    if progress:
        config.print_remarks([assembled.config])

    from scaling.training.run import Observers
    from scaling.training.run import train as train_run

    with _listeners(progress) as tell:
        result = train_run(given, Observers(tell, callbacks, loggers), again=again)
    path = Path(given["runs"]) / "store" / result["run"] if "run" in result else Path()
    return Run(path, result["already"], result.get("differences"))


@contextmanager
def _listeners(progress: bool) -> Iterator[list[Tell]]:
    from scaling.training.progress import teller

    with teller() if progress else nullcontext() as listener:
        yield [] if listener is None else [listener]


def runs(folder: str | Path = RUNS, study: str | None = None) -> pandas.DataFrame:
    """The runs of a ledger, or of one of its studies: a row a run, with its status and each key of its config."""
    import pandas

    from scaling.ledger import Ledger
    from scaling.ledger.result import flat

    ledger = Ledger.open(folder)
    rows = status_rows(ledger, study)
    specs = _specs(ledger, [row.run for row in rows])
    table = [{**vars(row), **flat(specs.get(row.run, {}))} for row in rows]
    return pandas.DataFrame(table, columns=None if table else ["run", "name", "state", "loss"])


def status_rows(ledger: Ledger, study: str | None = None) -> list[Row]:
    """One row a run, in the order of the study's plan; those without a name are called by what differs between them."""
    from scaling.ledger import index
    from scaling.ledger.names import names
    from scaling.ledger.status import printable

    rows = index.rows(ledger, None if study is None else ledger.runs_of(study))
    if study is not None:
        planned = {entry["run"]: printable(entry["name"]) for entry in ledger.plan(study)["runs"] if "name" in entry}
        rows = [replace(row, name=planned.get(row.run, row.name)) for row in rows]
    specs = _specs(ledger, [row.run for row in rows if row.name is None])
    differing = {run: printable(name) or None for run, name in names(specs).items()}
    return [replace(row, name=differing.get(row.run, row.name)) for row in rows]


def _specs(ledger: Ledger, runs: list[str]) -> dict[str, Mapping[str, Any]]:
    """What each run computes; a damaged spec is left out."""
    from scaling.ledger import index

    specs: dict[str, Mapping[str, Any]] = {
        run: spec for run, spec, _ in index.results(ledger, runs) if spec is not None
    }
    for run in runs:
        if run not in specs:
            with suppress(ScalingError):
                specs[run] = ledger.spec(run)
    return specs
