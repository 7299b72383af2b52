"""Recorder: what happens between updates. Logs, evaluations, checkpoints, signals; all of it at step boundaries."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer

from scaling.batch import Batch
from scaling.data.mixture import names_of
from scaling.data.task.task import is_task
from scaling.ledger import Attempt
from scaling.ledger.checkpoint import KEEP
from scaling.training import signals, state
from scaling.training.early_stop import EndedEarly, Patience
from scaling.training.evaluation import FORWARD, evaluate, share
from scaling.training.experiment import Experiment
from scaling.training.module import TrainingModule, Update, hook
from scaling.training.ranks import pulse, rank_count
from scaling.training.scores import Outputs, predicted, scores
from scaling.training.signals import PRUNE, Stopped
from scaling.training.spike import Spikes
from scaling.training.throughput import peak

UNLOGGED = ("loss_by_position", "evaluation_precision")  # of an evaluation: long, or the same in all


class Incomplete(Exception):
    """A training that ended without an error, and has not done what its result would state."""


class Superseded(Exception):
    """Another worker has taken the run over; what this one would still do is wasted."""


class Recorder(Callback):
    """Writes one attempt's log and checkpoints. `tell` and `listeners` receive every log entry too; `tell`, which
    follows the run for a person, hears also after every update and every batch of an evaluation how far it is.

    Ranks other than the first have no attempt: they agree on signals, take their part of evaluations, and help to
    gather a model that is sharded.
    `pinned` are steps whose checkpoints others need. Where `due`, the step that training starts from was saved without
    its evaluation, which is done first. With `patience` the run may end early, and ends with its best weights.
    `broadcast` gives every rank what the first has.
    """

    def __init__(
        self,
        experiment: Experiment,
        attempt: Attempt | None,
        tell: Collection[Callable[[Mapping[str, Any]], None]] = (),
        pinned: Collection[int] = (),
        due: bool = False,
        listeners: Collection[Callable[[Mapping[str, Any]], None]] = (),
        patience: Patience | None = None,
        broadcast: Callable[[Any], Any] = lambda value: value,
    ):
        config = experiment.config
        self.experiment, self.attempt, self.due = experiment, attempt, due
        self.tell, self.listeners = tell, listeners
        self.log_every, self.checkpoint_every = config["log.every"], config["train.checkpoint_every"]
        self.evaluated = experiment.evaluated
        self._windows = sum(self.evaluated.values())
        self.pinned = set(pinned)
        self.patience, self.broadcast = patience, broadcast
        self.end = experiment.steps  # the step at which the run ended, where it ended early
        self.latest: dict[str, Any] = {}
        self.latest_step: int | None = None
        self.spikes = Spikes()
        self.peak = peak(config["trainer.precision"])
        self._since, self._tokens = time.perf_counter(), 0
        self._scored = 0  # windows, of the evaluations so far

    @hook
    def on_train_start(self, trainer: Trainer, module: TrainingModule) -> None:  # type: ignore[override]
        done = sum(step < module.start + (not self.due) for step in self.evaluated)
        self._scored = done * self.experiment.windows[False]
        self._report_progress(module.start)
        if self.due and module.start in self.evaluated:
            self.evaluate_now(module.start, module, module.global_rank, trainer.world_size)
            if self.patience is not None and self.patience.exhausted:
                self.finish(module.start, module, module.global_rank, trainer.world_size)
                raise EndedEarly

    @hook
    def on_train_batch_end(self, trainer: Trainer, module: TrainingModule, *_: Any) -> None:  # type: ignore[override]
        step, ranks = module.start + trainer.fit_loop.batch_idx + 1, trainer.world_size
        if self.attempt is not None and self.attempt.superseded:
            self.attempt.end("stopped", "another worker has taken the run over")
            raise Superseded
        pulse()
        self._report_progress(step)
        signal = signals.agreed(ranks, module.device)
        last = step == self.experiment.steps
        above = self.spikes.above(module.update.loss)
        if above is not None:
            self.write({"kind": "spike", "step": step, "tokens": self.experiment.tokens(step), "above": above})
        if step % self.log_every == 0 or last or step == module.start + 1:
            self._log_training(step, module.update)
        try:
            if step in self.evaluated and signal in (0, PRUNE):
                self.evaluate_now(step, module, module.global_rank, ranks)
            if signal:
                signals.stop(signal, step)
        except Stopped:
            self._save(step, module)
            raise
        exhausted = self.patience is not None and self.patience.exhausted
        best = self.patience is not None and self.patience.best_step == step
        if step % self.checkpoint_every == 0 or step in self.pinned or last or best or exhausted:
            self._save(step, module)
        if last or exhausted:
            self.finish(step, module, module.global_rank, ranks)
        if exhausted and not last:
            raise EndedEarly

    def write(self, entry: Mapping[str, Any]) -> None:
        if self.attempt is not None:
            self.attempt.log.write(entry)
        for tell in (*self.tell, *self.listeners):
            tell(entry)

    def _report_progress(self, step: int, evaluated: float | None = None) -> None:
        """Report the fraction of the run's compute that is done, and of the evaluation that is going on, if one is."""
        if not self.tell:
            return
        experiment = self.experiment
        scored = self._scored + (evaluated or 0.0) * experiment.windows[step == experiment.steps]
        every = experiment.size.before(experiment.steps) + FORWARD * self._windows
        done = (experiment.size.before(step) + FORWARD * scored) / every
        entry = {"kind": "progress", "step": step, "steps": experiment.steps, "done": done, "evaluated": evaluated}
        for tell in self.tell:
            tell(entry)

    def _log_training(self, step: int, update: Update) -> None:
        now, tokens = time.perf_counter(), self.experiment.tokens(step)
        speed = (tokens - self._tokens) / max(1e-9, now - self._since) if self._tokens else None
        self._since, self._tokens = now, tokens
        self.write(
            {
                "kind": "train",
                "step": step,
                "steps": self.experiment.steps,
                "tokens": tokens,
                "loss": update.loss,
                "gradient_norm": update.norm,
                "learning_rate": update.rate,
                "tokens_per_second": speed,
                "mfu": self._utilisation(speed),
            }
        )

    def _utilisation(self, tokens_per_second: float | None) -> float | None:
        if self.peak is None or tokens_per_second is None:
            return None
        return (
            tokens_per_second
            * self.experiment.cost.flops_train_per_token
            / (self.peak * rank_count(self.experiment.config))
        )

    def evaluate_now(self, step: int, module: TrainingModule, rank: int = 0, ranks: int = 1) -> None:
        """Evaluate; a signal ends it between two batches, on all ranks."""
        self.latest, self.latest_step = self._evaluated(step, module, rank, ranks), step
        entry = {key: value for key, value in self.latest.items() if key not in UNLOGGED}
        self.write({"kind": "evaluate", "step": step, "tokens": self.experiment.tokens(step), **entry})
        self._scored += self.experiment.windows[step == self.experiment.steps]
        if self.patience is not None:
            measured = {key: self.latest[key] for key in ("loss", "score") if key in self.latest}
            self.patience = self.patience.after(step, self.broadcast(measured))

    def finish(self, step: int, module: TrainingModule, rank: int = 0, ranks: int = 1) -> None:
        """End the run at a step. Where it may end early, its weights become those of its best evaluation, which is done
        again where it is not the latest.
        """
        self.end = step
        if self.patience is None or self.patience.best_step is None:
            return
        best = self.patience.best_step
        if best != step or not self.latest:
            saved = None if self.attempt is None else self.attempt.saved(best)
            folder = self.broadcast(None if saved is None else str(saved.folder))
            if folder is None:
                raise Incomplete(f"the checkpoint of step {best}, the best, is gone; the run is not finished")
            module.take_up(Path(folder))
            self.latest = self._evaluated(best, module, rank, ranks)
        self.latest, self.latest_step = {**self.latest, "best_step": best}, step

    def _evaluated(self, step: int, module: TrainingModule, rank: int, ranks: int) -> dict[str, Any]:
        started = time.perf_counter()
        validation, count = self.experiment.evaluation(step)
        batches = share(validation, count, rank, ranks)
        self._report_progress(step, 0.0)
        beating = self._counted(_beating(batches, module.device, step, ranks), step, -(-count // ranks))
        source = self.experiment.held_out
        outputs = Outputs(validation, count, rank, ranks) if is_task(source) else None
        with module.weights.scored(module.device) as model:
            measured = evaluate(
                model,
                beating,
                source,
                ranks,
                self.experiment.is_code,
                outputs,
                names_of(source),
                self.experiment.text,
            )
        if outputs is not None:
            measured |= scores(source, predicted(outputs, source), written=outputs.written)
        self._since += time.perf_counter() - started  # an evaluation is no part of the training's speed
        return {**measured, "evaluation_precision": module.weights.evaluation}

    def _counted(self, batches: Iterable[Batch], step: int, count: int) -> Iterator[Batch]:
        """Batches of an evaluation; each is reported when the next one is asked for, since then it is done."""
        for number, batch in enumerate(batches, 1):
            yield batch
            self._report_progress(step, number / count)

    def _save(self, step: int, module: TrainingModule) -> None:
        if self.attempt is None and not module.sharded:
            return
        started = time.perf_counter()
        note = {"tokens": self.experiment.tokens(step), **self.experiment.start_note}
        keep, before = self.experiment.config["train.keep"], step - step % self.checkpoint_every
        pinned = [before - back * self.checkpoint_every for back in range(keep if keep > KEEP else 0)]
        if self.patience is not None:
            note |= self.patience.note
            pinned += [] if self.patience.best_step is None else [self.patience.best_step]
        with nullcontext() if self.attempt is None else self.attempt.checkpoint(step, note, pinned) as folder:
            state.save(folder, module.saved, module.torch_optimizers)
        self._since += time.perf_counter() - started


def _beating(batches: Iterable[Batch], device: torch.device, step: int, ranks: int) -> Iterator[Batch]:
    """Batches on the device; after each the supervisor hears that all is well, and a signal ends the evaluation."""
    for batch in batches:
        yield batch.to(device)
        pulse()
        signal = signals.agreed(ranks, device)
        if signal not in (0, PRUNE):
            signals.stop(signal, step)
