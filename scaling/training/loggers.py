"""Lightning's loggers of a run: its log, W&B, those that the config names, and a person's own.

The ledger is the record. Where W&B fails, that is one warning, and the training is the same.
"""

from __future__ import annotations

import math
import os
import signal
import threading
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger, WandbLogger
from lightning.pytorch.loggers.logger import DummyLogger

from scaling.base.json_lines import flat
from scaling.base.signals import PRUNE
from scaling.ledger import Attempt, Ledger
from scaling.ledger.run import history
from scaling.training.point import point
from scaling.training.wandb_settings import SWEEP, mode, settings, shown, tried

if TYPE_CHECKING:
    from scaling.training.experiment import Experiment

STOP_WAIT = 45.0  # seconds in which W&B's client hears of a stop: it looks every 15, and may need more than one look
KINDS = ("train", "evaluate")  # of entries that loggers get
ENDS = ("outcome", "loss", "score", "step", "reason")  # of a result, in W&B's summary
LABELS = ("study=", "row=", "sweep=")  # tags that begin so are in W&B's config too


class RunWandbLogger(WandbLogger):
    """A run of the ledger as a run of W&B. Only what the ledger knows is sent: the spec, the entries, the result.

    Each attempt at the run goes on in the same W&B run; entries of attempts before that W&B does not have yet are sent
    first. In a sweep the agent names the W&B run, and a stop that the server asks for (hyperband's, or a person's)
    prunes the run.
    """

    def __init__(self, experiment: Experiment, attempt: int, folder: Path):
        import wandb

        self._asked, self._next = threading.Event(), 0.0  # W&B's next step; none follows a row that failed
        self._flops = experiment.cost.flops_train_per_token
        self._online = mode(experiment.config) == "online"
        log, sweep = experiment.config["log"], os.environ.get(SWEEP)
        tags = [str(tag) for tag in log["tags"]]
        labels = dict(tag.split("=", 1) for tag in tags if tag.startswith(LABELS))
        labels |= {"sweep": sweep} if sweep else {}
        (folder / "wandb").mkdir(exist_ok=True)
        shown_run = wandb.init(
            project=log["project"] or "scaling",
            group=log["group"] or sweep,
            name=experiment.name,
            tags=tags,
            id=folder.name,
            job_type="train" if experiment.horizon else "trunk",
            config={
                **shown(experiment.spec),
                **labels,
                "run": folder.name,
                "attempt": attempt,
                "point": point(experiment),
            },
            mode="online" if self._online else "offline",
            dir=str(folder / "wandb"),
            resume="allow" if self._online else None,  # offline, W&B prints a warning
            settings=settings(stop_fn=self._stop),
        )
        super().__init__(experiment=shown_run)
        if self._online and shown_run.url:  # offline, W&B prints a warning
            (folder / "wandb" / "address").write_text(shown_run.url, encoding="utf-8")
        for axis in ("tokens", "flops"):
            shown_run.define_metric(axis, hidden=True)
        shown_run.define_metric("*", step_metric="tokens")
        for entry in history(folder):
            if entry.get("kind") in KINDS:
                self.log_metrics(numbers(entry), entry["step"])

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Log a row, unless an earlier one failed. An evaluation follows the update of its step, so that each step of
        the run is two of W&B's, and what an interrupted attempt has sent already is not sent again.
        """
        self._next = tried(lambda: self._log(metrics, step or 0)) or math.inf

    def _log(self, metrics: Mapping[str, Any], step: int) -> float:
        """Log a row that was not sent before; returns W&B's next step."""
        at = 2 * step + any(name.startswith("evaluate/") for name in metrics)
        row = {name: value for name, value in metrics.items() if name.partition("/")[2] not in ("tokens", "steps")}
        for tokens in {value for name, value in metrics.items() if name.partition("/")[2] == "tokens"}:
            row |= {"tokens": tokens, "flops": tokens * self._flops}
        if at >= self._next and at >= self.experiment.starting_step:
            self.experiment.log({**row, "trainer/global_step": step}, step=at)
        return max(self._next, at + 1)

    def end(self, result: Mapping[str, Any] | None) -> None:
        """Report how the run ended; without a result W&B shows it as failed. Waits for W&B for a bounded time."""

        def finish() -> None:
            ends = {key: (result or {}).get(key) for key in ENDS}
            self.experiment.summary.update({key: value for key, value in ends.items() if value is not None})
            self.experiment.finish(0 if result else 1)

        tried(finish)

    def pruned(self) -> bool:
        """Whether W&B requests that the run of a sweep stop. The agent's SIGTERM comes before its client knows why."""
        may_prune = self._online and SWEEP in os.environ
        return may_prune and self._asked.wait(STOP_WAIT)

    def _stop(self) -> None:
        """W&B asks for a stop: the run saves and leaves at its next step."""
        self._asked.set()
        os.kill(os.getpid(), PRUNE if SWEEP in os.environ else signal.SIGTERM)


LOGGERS: dict[str, Callable[..., Logger]] = {
    "csv": partial(CSVLogger, flush_logs_every_n_steps=1),
    "tensorboard": partial(TensorBoardLogger, default_hp_metric=False),
}


def opened(
    experiment: Experiment, attempt: Attempt, own: Collection[Logger]
) -> tuple[list[Logger], RunWandbLogger | None]:
    """The loggers of an attempt, and that of W&B among them: a person's `own`, the first of which is `trainer.logger`,
    those that the config names, which write into the run's folder by the attempt's number, and W&B last, because a
    person's WandbLogger would join a run that is open already.
    """
    names = {name: f"{name}-{attempt.number:03d}" for name in experiment.config["log.loggers"]}
    loggers = [*own, *(LOGGERS[name](attempt.run, name=place, version="") for name, place in names.items())]
    for each in loggers:
        each.log_hyperparams({**experiment.spec, "run": attempt.run_id, "attempt": attempt.number})
    wandb = _wandb(experiment, attempt.number, attempt.run)
    loggers += [] if wandb is None else [wandb]
    return loggers or [DummyLogger()], wandb  # callbacks that need a logger find one that does nothing


def report_again(experiment: Experiment, ledger: Ledger, result: Mapping[str, Any]) -> None:
    """Show a run that was done before in the W&B run that a sweep has given it, so that the sweep knows its metric."""
    if SWEEP in os.environ:
        wandb = _wandb(experiment, result["attempt"], ledger.folder(result["run"]))
        if wandb is not None:
            wandb.end(result)


def _wandb(experiment: Experiment, attempt: int, folder: Path) -> RunWandbLogger | None:
    """The run's W&B run, which gets what attempts before logged; None where W&B is disabled or cannot be reached."""
    if mode(experiment.config) == "disabled":
        return None
    return tried(lambda: RunWandbLogger(experiment, attempt, folder))


def numbers(entry: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of an entry as metrics: `loss` of the kind `train` is `train/loss`, nested ones have dotted names."""
    values = flat({key: value for key, value in entry.items() if key not in ("kind", "step")})
    return {f"{entry['kind']}/{name}": value for name, value in values.items() if isinstance(value, int | float)}
