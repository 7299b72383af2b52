"""Loggers: a run's entries shown by other Lightning loggers in addition to the log, each in its own thread.

The ledger is the record; whatever happens here, the training is the same.
"""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.config import Config
from scaling.errors import nearest
from scaling.ledger import Attempt
from scaling.ledger.document import flat
from scaling.training.background import BackgroundListener, Entry

if TYPE_CHECKING:
    from lightning.pytorch.loggers import Logger

PATIENCE = 20.0  # seconds that a logger may take to finish


def _csv(config: Config, attempt: Attempt, folder: Path) -> Logger:
    from lightning.pytorch.loggers import CSVLogger

    return CSVLogger(folder.parent, name=folder.name, version="", flush_logs_every_n_steps=1)


def _tensorboard(config: Config, attempt: Attempt, folder: Path) -> Logger:
    from lightning.pytorch.loggers import TensorBoardLogger

    return TensorBoardLogger(folder.parent, name=folder.name, version="", default_hp_metric=False)


def _mlflow(config: Config, attempt: Attempt, folder: Path) -> Logger:
    """At MLFLOW_TRACKING_URI where that is set, else in the attempt's folder."""
    from lightning.pytorch.loggers import MLFlowLogger

    logging.getLogger("mlflow").setLevel(logging.WARNING)
    log = config["log"]
    return MLFlowLogger(
        experiment_name=log["group"] or log["project"] or "scaling",
        run_name=log["name"] or f"{attempt.run_id}-{attempt.number:03d}",
        tracking_uri=os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder}.db",
        tags={"run": attempt.run_id, "attempt": str(attempt.number)},
    )


# By name: what makes it, and the module that it needs besides Lightning, which an extra of the same name installs.
LOGGERS: dict[str, tuple[Callable[[Config, Attempt, Path], Logger], str | None]] = {
    "csv": (_csv, None),
    "tensorboard": (_tensorboard, "tensorboard"),
    "mlflow": (_mlflow, "mlflow"),
}


def check(config: Config) -> None:
    """Refuse a logger that does not exist, or whose package is not there, before anything starts."""
    for name in config["log.loggers"]:
        if not isinstance(name, str) or name not in LOGGERS:
            raise config.error("log.loggers", f"there is no logger {name!r}", nearest(str(name), LOGGERS))
        module = LOGGERS[name][1]
        if module is not None and importlib.util.find_spec(module) is None:
            what = f"the package {module} is not installed"
            raise config.error("log.loggers", what, f"pip install 'scaling[{name}]', or leave {name} out")


@contextmanager
def logged(
    config: Config, spec: Mapping[str, Any], attempt: Attempt | None, given: Collection[Logger] = ()
) -> Iterator[list[BackgroundListener]]:
    """The loggers that the config names and those that are given; none on a rank without an attempt."""
    if attempt is None:
        yield []
        return
    with ExitStack() as stack:
        listeners = []
        named = {
            name: partial(LOGGERS[name][0], config, attempt, attempt.run / f"{name}-{attempt.number:03d}")
            for name in config["log.loggers"]
        }
        own = {type(logger).__name__: partial(_itself, logger) for logger in given}
        for name, make in {**named, **own}.items():
            listener = BackgroundListener(name, partial(_tell, make, spec, attempt), PATIENCE)
            stack.callback(listener.close)
            listeners.append(listener)
        yield listeners


def _itself(logger: Logger) -> Logger:
    return logger


def _tell(make: Callable[[], Logger], spec: Mapping[str, Any], attempt: Attempt, entries: Iterator[Entry]) -> None:
    target: Any = make()
    target.log_hyperparams({**spec, "run": attempt.run_id, "attempt": attempt.number})
    for entry in entries:
        numbers = {key: value for key, value in flat(entry).items() if isinstance(value, int | float) and key != "step"}
        target.log_metrics({f"{entry['kind']}/{key}": value for key, value in numbers.items()}, step=entry["step"])
    target.finalize("success")
