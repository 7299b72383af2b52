"""Callbacks: what happens between the updates of a run, on all ranks alike; and what a person sees of it."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.loggers import Logger
from lightning.pytorch.trainer.states import TrainerFn
from rich.console import Console
from rich.progress import BarColumn, Progress

from scaling.base import signals
from scaling.base.signals import PRUNE
from scaling.ledger import Attempt
from scaling.ledger.checkpoint import KEEP
from scaling.training.experiment import Experiment
from scaling.training.loggers import numbers, opened
from scaling.training.machine import peak
from scaling.training.module import FamilyModule, Incomplete
from scaling.training.precision import own

Listener = Callable[[Mapping[str, Any]], None]

LINES = 5.0  # seconds between plain lines of training
PERIOD = 600.0  # seconds by which the speed is estimated, and with it the time left
UNLOGGED = ("loss_by_position", "evaluation_precision")  # of an evaluation: long, or the same in all


@dataclass(frozen=True)
class Best:
    """The evaluation that a run's result is of: the last one, or the best where the run has patience. One is better
    with a higher `score`, where the run has one, and else with a lower `loss`; one that is not finite is no
    improvement.
    """

    last: int | None = None  # step of the last evaluation
    step: int | None = None  # step of this one
    measured: Mapping[str, Any] = field(default_factory=dict)
    since: int = 0  # evaluations since then

    def after(self, step: int, measured: Mapping[str, Any], patient: bool = True) -> Best:
        """The same after one more evaluation."""
        values = [one.get("score", -one.get("loss", math.inf)) for one in (measured, self.measured)]
        if not patient or (math.isfinite(values[0]) and values[0] > values[1]):
            return Best(step, step, measured)
        return replace(self, last=step, since=self.since + 1)


class LedgerCallback(Checkpoint):
    """Evaluates, logs and saves a run; Lightning calls it after the other callbacks.

    It lets Lightning validate at the steps of the run's evaluations, writes each entry of the run's log, and hands it
    to the loggers and to `listeners`, which show the run to a person and are also called at each step. It saves every
    so many steps, at `pinned` steps, which others need, at the best step and at the end; a signal is waited for, and
    saved for.

    It ends a run when so many evaluations as the run has patience for did not improve. A checkpoint's note keeps the
    `best`, so that a resumed run ends at the same step. (Lightning's `EarlyStopping` knows no best step, and not which
    of loss and score a run has.)

    Ranks other than the first write nothing. At the end the loggers are closed, and W&B gets the run's `result`.
    """

    def __init__(
        self,
        experiment: Experiment,
        attempt: Attempt | None,
        pinned: Collection[int],
        best: Best,
        listeners: Collection[Listener] = (),
        loggers: Collection[Logger] = (),
    ):
        self.experiment, self.attempt, self.pinned, self.best = experiment, attempt, pinned, best
        self.listeners = listeners
        self.loggers, self.wandb = ([], None) if attempt is None else opened(experiment, attempt, loggers)
        self.result: Mapping[str, Any] | None = None  # how the run ended
        self.evaluated, self.peak = experiment.evaluated, peak(experiment.config["trainer.precision"])
        self.step = 0  # the last one that was saved
        self._since, self._tokens = time.perf_counter(), 0

    def close(self) -> None:
        for each in self.loggers:
            each.finalize("success" if self.result else "failed")
        if self.wandb is not None:
            self.wandb.end(self.result)

    @property
    def exhausted(self) -> bool:
        """Whether the run ends for lack of improvement."""
        return self.experiment.patience is not None and self.best.since >= self.experiment.patience

    @property
    def _best_step(self) -> list[int]:
        """The step whose weights the result is of, where the run may end early."""
        return [] if self.experiment.patience is None or self.best.step is None else [self.best.step]

    def setup(self, trainer: Trainer, module: FamilyModule, stage: str) -> None:  # type: ignore[override]
        module.recorded = True

    def on_train_start(self, trainer: Trainer, module: FamilyModule) -> None:  # type: ignore[override]
        signals.take_back()
        self.norms = norms(module)
        self._progress(trainer.global_step)

    def on_train_batch_end(  # type: ignore[override]
        self, trainer: Trainer, module: FamilyModule, outputs: Mapping[str, Any], *_: Any
    ) -> None:
        step = trainer.datamodule.evaluated = trainer.global_step  # type: ignore[attr-defined]
        if not outputs:  # a StopIteration ends Lightning's step without a word
            raise Incomplete(f"updates after step {step}", 0, 1)
        is_evaluated = step in self.evaluated
        # Lightning validates where the number of updates is a multiple of this.
        trainer.val_check_batch = step if is_evaluated else math.inf
        self._progress(step)
        if step % self.experiment.config["log.every"] == 0 or step in (1, self.experiment.steps):
            self._write_update(step, outputs, trainer.world_size)
        lost = self.attempt is not None and self.attempt.superseded
        signal = signals.agreed(trainer.world_size, module.device, lost)
        if signal and not (is_evaluated and signal == PRUNE):
            self._leave(trainer, signal)
        if not is_evaluated:
            self._save_where_due(trainer)

    def on_validation_start(self, trainer: Trainer, module: FamilyModule) -> None:  # type: ignore[override]
        signals.take_back()
        self._started = time.perf_counter()
        self._progress(trainer.datamodule.evaluated, evaluating=True)  # type: ignore[attr-defined]

    def on_validation_batch_end(self, trainer: Trainer, module: FamilyModule, *_: Any) -> None:  # type: ignore[override]
        signal = signals.agreed(trainer.world_size, module.device)
        if signal not in (0, PRUNE):
            self._leave(trainer, signal)

    def on_validation_end(self, trainer: Trainer, module: FamilyModule) -> None:  # type: ignore[override]
        self._since += time.perf_counter() - self._started  # an evaluation is not part of the training's speed
        count, planned = module.evaluation.batches, len(trainer.val_dataloaders)  # type: ignore[arg-type]
        if count != planned:  # or its loop
            raise Incomplete("batches of the evaluation", count, planned)
        if trainer.state.fn != TrainerFn.FITTING:
            return  # it evaluates alone
        self.evaluate(trainer.global_step, module.measured)
        trainer.should_stop |= self.exhausted
        if signal := signals.agreed(trainer.world_size, module.device):
            self._leave(trainer, signal)
        self._save_where_due(trainer)

    def evaluate(self, step: int, measured: Mapping[str, Any]) -> None:
        """Log what an evaluation measured, and compare it with those before."""
        self.best = self.best.after(step, measured, self.experiment.patience is not None)
        entry = {key: value for key, value in measured.items() if key not in UNLOGGED}
        self._write({"kind": "evaluate", "step": step, "tokens": self.experiment.tokens(step), **entry})

    def _write_update(self, step: int, outputs: Mapping[str, Any], ranks: int) -> None:
        now, tokens = time.perf_counter(), self.experiment.tokens(step)
        speed = (tokens - self._tokens) / max(1e-9, now - self._since) if self._tokens else None
        self._since, self._tokens, mfu = now, tokens, None
        if self.peak is not None and speed is not None:
            mfu = speed * self.experiment.cost.flops_train_per_token / (self.peak * ranks)
        place = {"kind": "train", "step": step, "steps": self.experiment.steps, "tokens": tokens}
        measured = {key: float(outputs[key]) for key in ("loss", "gradient_norm", "learning_rate")}
        self._write({**place, **measured, "tokens_per_second": speed, "mfu": mfu})

    def _write(self, entry: Mapping[str, Any]) -> None:
        if self.attempt is not None:
            self.attempt.log.write(entry)
        for each in self.loggers:
            each.log_metrics(numbers(entry), entry["step"])
        for listener in self.listeners:
            listener(entry)

    def _progress(self, step: int, evaluating: bool = False) -> None:
        for listener in self.listeners:
            listener({"kind": "progress", "step": step, "steps": self.experiment.steps, "evaluating": evaluating})

    def _save_where_due(self, trainer: Trainer) -> None:
        step, interval = trainer.global_step, self.experiment.config["train.checkpoint_every"]
        is_last = step == self.experiment.steps or trainer.should_stop
        if step % interval == 0 or step in self.pinned or step in self._best_step or is_last:
            self._save(trainer)

    def _leave(self, trainer: Trainer, signal: int) -> None:
        if trainer.state.fn == TrainerFn.FITTING and signal != signals.LOST:
            self._save(trainer)
        signals.stop(signal, trainer.datamodule.evaluated)  # type: ignore[attr-defined]

    def _save(self, trainer: Trainer) -> None:
        self.step = step = trainer.global_step
        interval, keep = (self.experiment.config[f"train.{key}"] for key in ("checkpoint_every", "keep"))
        note = {"tokens": self.experiment.tokens(step), "best": asdict(self.best)}
        if (start := self.experiment.start) is not None and self.experiment.saved != self.experiment.names:
            note["start"] = start.record  # of the weights that a checkpoint leaves out
        pinned = [*range(step - step % interval, 0, -interval)[: keep if keep > KEEP else 0], *self._best_step]
        with nullcontext("") if self.attempt is None else self.attempt.checkpoint(step, note, pinned) as folder:
            trainer.save_checkpoint(folder)


def norms(module: FamilyModule) -> list[float]:
    """The norms of the weights, which differ once the weights have moved."""
    return [float(own(master.detach()).double().norm()) for master in module.weights.masters]


class ProgressDisplay(Progress):
    """Prints on standard error each evaluation, and in between how far the run is: the loss, the speed, the fraction of
    the machine's peak where that is known, and the time left. On a terminal that is a bar, elsewhere a line every few
    seconds.
    """

    def __init__(self, console: Console | None = None):
        console = console or Console(stderr=True)
        places = (
            "{task.completed:,.0f} of {task.total:,.0f}",
            BarColumn(),
            "{task.fields[speeds]}",
            "{task.description}",
        )
        plain = not console.is_terminal
        super().__init__(*places, console=console, transient=True, disable=plain, speed_estimate_period=PERIOD)
        self.add_task("", total=1, visible=False, speeds="")
        self._next = 0.0

    def __call__(self, entry: Mapping[str, Any]) -> None:
        step, (task,) = entry["step"], self.tasks
        if entry["kind"] == "evaluate":
            score = f"  score {entry['score']:.4f}" if "score" in entry else ""
            self._print(f"step {step:>7,} held-out loss {entry['loss']:.4f}{score}")
            return
        is_last = entry["kind"] == "train" and step == entry["steps"]
        if entry["kind"] == "train":
            speed, mfu = entry["tokens_per_second"], entry["mfu"]
            words = f"loss {entry['loss']:.4f}", speed and f"{speed:,.0f} tokens/s", mfu and f"{mfu:.0%} of peak"
            task.fields["speeds"] = "  ".join(word for word in words if word)
        left = task.time_remaining
        clock = "" if left is None or step == entry["steps"] else f"{timedelta(seconds=round(left))} left"
        what = "evaluating" if entry.get("evaluating") else clock
        self.update(task.id, completed=step, total=entry["steps"], description=what, visible=True)
        if self.disable and task.fields["speeds"] and (time.monotonic() >= self._next or is_last):
            self._next = time.monotonic() + LINES
            self._print(f"step {step:>7,} of {entry['steps']:,}  {task.fields['speeds']}  {what}".rstrip())

    def _print(self, line: str) -> None:
        if self.disable:
            print(line, file=sys.stderr, flush=True)
        else:
            self.console.print(line, highlight=False)
