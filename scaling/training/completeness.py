"""Completeness: what a training must have done before its result is published, counted as it happens."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback, Trainer

from scaling.batch import Batch
from scaling.errors import ScalingError
from scaling.ledger import Checkpoint
from scaling.ledger.checkpoint import steps
from scaling.training.experiment import Experiment
from scaling.training.module import TrainingModule
from scaling.training.recorder import Incomplete, Recorder
from scaling.training.sharding import own


class Completeness(Callback):
    """Compares what each step trains with the experiment, and at the end, by `check`, the whole."""

    def __init__(self, experiment: Experiment, recorder: Recorder):
        self.experiment, self.recorder = experiment, recorder
        self.before: list[float] = []

    def on_train_start(self, trainer: Trainer, module: TrainingModule) -> None:  # type: ignore[override]
        self.before = _norms(module)

    def on_train_batch_end(  # type: ignore[override]
        self, trainer: Trainer, module: TrainingModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        step = module.start + batch_idx
        _equal(f"updates applied by step {step + 1}", module.updates, batch_idx + 1)
        if self.experiment.batches.objective.takes == "windows":  # other batches differ in their tokens
            tokens = batch.tokens.numel() + (0 if batch.source is None else batch.source.numel())
            planned = self.experiment.tokens(step + 1) - self.experiment.tokens(step)
            _equal(f"tokens of step {step + 1}", tokens * trainer.world_size, planned)

    def check(self, module: TrainingModule) -> None:
        """Refuse a training that did not apply every update, or did not save and evaluate its last step."""
        experiment, begin, end = self.experiment, module.start, self.recorder.end
        _equal("updates applied", module.updates, max(0, end - begin))
        attempt = self.recorder.attempt
        if attempt is None:
            return
        if begin < end:
            saved = max((step for step in steps(attempt.folder) if step <= end), default=0)
            _equal("step of the last checkpoint", saved, end)
        if experiment.horizon:
            _equal("step of the last evaluation", self.recorder.latest_step, end)
        # The last steps of a resumed run may have a rate of zero; a whole run whose weights stay as drawn is a mistake.
        if begin == 0 and self.before == _norms(module):
            what = f"none of the weights has changed in {end:,} updates"
            lr = experiment.optimizer.lr
            raise ScalingError(what, key="optimizer.lr", value=lr, fix="take a larger learning rate")


def belongs(checkpoint: Checkpoint, experiment: Experiment) -> bool:
    """Whether a checkpoint can be of this experiment: of one of its steps, after the tokens of that many steps."""
    within = checkpoint.step <= experiment.steps or not experiment.horizon
    return within and checkpoint.note.get("tokens") == experiment.tokens(checkpoint.step)


def _norms(module: TrainingModule) -> list[float]:
    return [float(own(master.detach()).double().norm()) for master in module.weights.masters]


def _equal(what: str, count: int | None, planned: int) -> None:
    if count != planned:
        raise Incomplete(f"{what}: {count} instead of {planned}; the run is not finished")
