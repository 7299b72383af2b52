"""LightningModules: a model with its loss, its optimizer and its schedule.

`FamilyModule` is for any `lightning.Trainer`: Lightning optimizes, validates, checkpoints and logs. `TrainingModule` is
what `scaling train` runs. It replaces Lightning's loop where a result must be exact: the loss is the mean over the
targets of the whole global batch, however it is split over micro batches and ranks; nothing that is not finite reaches
the weights; and a resumed run repeats the one that was not stopped, bit for bit. Lightning's checkpoints are not atomic
and drop the random state, its validation rounds the mean over batches, and its loggers and progress bar restart at a
resume, so the ledger's recorder does these.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import torch
import torch.distributed
from lightning.pytorch import LightningModule
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LambdaLR

from scaling.batch import IGNORE, Batch
from scaling.data import hashing
from scaling.errors import ScalingError
from scaling.model.family import Family, Loss, targets_of
from scaling.model.parameters import parameters
from scaling.nn.contract import Redrawn, conforms
from scaling.objective import Distil
from scaling.training import state
from scaling.training.experiment import Experiment
from scaling.training.parameter import Parameter
from scaling.training.precision import Weights
from scaling.training.sharding import shard, whole


class Diverged(Exception):
    """A loss or a gradient that is not finite, caught before it reached the weights."""

    def __init__(self, step: int, what: str, loss: float):
        self.step, self.what, self.loss = step, what, loss
        super().__init__(f"{what} is not finite at step {step}")


@dataclass(frozen=True)
class Update:
    """What came of one update: the global batch's mean loss, the gradient's norm before clipping, the rate."""

    loss: float
    norm: float
    rate: float


Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")


def hook(method: Callable[Arguments, Returned]) -> Callable[Arguments, Returned]:
    """A method that Lightning calls, in which whatever goes wrong is an error.

    Lightning takes a StopIteration for the end of the data, and by a SystemExit the command would end without a word.
    """

    @wraps(method)
    def called(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Returned:
        try:
            return method(*args, **kwargs)
        except (StopIteration, SystemExit) as error:
            raise RuntimeError(f"a step of training raised {type(error).__name__}") from error

    return called


class FamilyModule(LightningModule):
    """A model of one family with its loss, optimizer and schedule, for a `lightning.Trainer` of one's own.

    One batch of the data module is one update of the run, `train.micro_batch` aside, and its `steps` are the run's.
    Gradients are clipped at `trainer.gradient_clip_val` of the config unless the Trainer has another. It logs
    `train/loss` and `evaluate/loss`, in nats per token.
    """

    def __init__(self, experiment: Experiment, model: Family):
        super().__init__()
        config = experiment.config
        self.experiment, self.model = experiment, model
        self.clip, self.smoothing = config["trainer.gradient_clip_val"], config["train.smoothing"]
        self.teacher = None if experiment.teacher is None else experiment.teacher.model().requires_grad_(False)

    @property
    def steps(self) -> int:
        """Updates of the whole run, `max_steps` of a Trainer."""
        return self.experiment.steps

    def forward(self, batch: Batch) -> Tensor:
        """The predictions' logits."""
        return self.model.logits(batch)

    def training_step(self, batch: Batch, batch_idx: int) -> Any:
        self._begin(self.trainer.fit_loop.total_batch_idx)
        loss = self._loss(batch)
        self.log("train/loss", loss.tokens.detach(), prog_bar=True, batch_size=batch.rows)
        return loss.total

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """`evaluate/loss` is the mean over all targets; where the data's law is known, without the sample's noise."""
        losses, targets = self.model.losses(batch), targets_of(self.model.head, batch)
        bears = targets != IGNORE
        count = max(1, int(bears.sum()))
        loss = losses.sum() / count
        if batch.truth is not None and self.experiment.entropy is not None:
            loss = self.experiment.entropy + (losses - batch.truth)[bears].sum() / count
        self.log("evaluate/loss", loss, prog_bar=True, batch_size=count, sync_dist=True)

    def predict_step(self, batch: Batch, batch_idx: int) -> Tensor:
        return self(batch)

    def configure_optimizers(self) -> Any:
        learned = [Parameter(spec, tensor) for spec, tensor in parameters(self.model) if tensor.requires_grad]
        optimizers = self.experiment.optimizer.make(learned, self.experiment.rates)
        if len(optimizers) > 1:
            name = type(self.experiment.optimizer).__name__
            raise ScalingError(
                f"{name} is {len(optimizers)} optimizers of torch, and Lightning steps one by itself",
                key="optimizer.kind",
                value=name,
                fix="take AdamW, or train by scaling.train",
            )
        (optimizer,) = optimizers
        for group in optimizer.param_groups:
            group["lr"] = group["peak"]
        schedule = LambdaLR(optimizer, lambda step: self.experiment.schedule.factor(step, self.steps))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def configure_gradient_clipping(  # type: ignore[override]
        self, optimizer: Any, gradient_clip_val: float | None = None, gradient_clip_algorithm: str | None = None
    ) -> None:
        limit = self.clip if gradient_clip_val is None else gradient_clip_val
        self.clip_gradients(optimizer, limit, gradient_clip_algorithm or "norm")

    def _begin(self, step: int) -> None:
        """All that a step draws is a function of its number."""
        _reseed(self.experiment.seed, step, self.global_rank)
        for piece in self.model.modules():
            if conforms(piece, Redrawn):
                piece.at_step(step)

    def _loss(self, batch: Batch) -> Loss:
        """What is minimised: the head's own loss, or the distance to a teacher's predictions as well."""
        if self.teacher is None:
            return self.model.loss(batch, self.smoothing)
        objective = cast(Distil, self.experiment.batches.objective)
        if self.model.head.answer is not None:
            teaching = self.experiment.teaching
            taught = batch if teaching is None else teaching.batch(batch)
            return objective.task_loss(self.model, batch, self.teacher, taught)
        return Loss(objective.loss(self.model.logits(batch), batch, self.teacher.logits), {})


class EncoderModule(FamilyModule):
    """A masked language model or a classifier."""


class DecoderModule(FamilyModule):
    """A language model."""


class EncoderDecoderModule(FamilyModule):
    """A sequence-to-sequence model."""


MODULES = {"encoder": EncoderModule, "decoder": DecoderModule, "encoder_decoder": EncoderDecoderModule}


class TrainingModule(FamilyModule):
    """One update of a model of any family: its micro batches, the gradient's norm, the schedule, the step."""

    def __init__(self, experiment: Experiment, model: Family, start: int, checkpoint: Path | None = None):
        super().__init__(experiment, model)
        self.automatic_optimization = False
        self.start, self.checkpoint = start, checkpoint
        self.micro_rows = experiment.config["train.micro_batch"]
        self.torch_optimizers: list[torch.optim.Optimizer] = []
        self.updates = 0  # applied by this process
        if experiment.config["trainer.strategy"] != "fsdp":
            self.configure_model()

    def configure_model(self) -> None:
        """Shard the model where the strategy has made a mesh of ranks, make its optimizers, take up a checkpoint.

        Lightning calls it when the ranks are joined.
        """
        if self.torch_optimizers:
            return
        config = self.experiment.config
        sharded = partial(shard, mesh=self.device_mesh["data_parallel"]) if self.sharded else None  # type: ignore[index]
        precisions = config["trainer.precision"], config["evaluate.precision"]
        self.weights = Weights(self.model, *precisions, sharded, self.experiment.saved)
        self.model = self.weights.trained
        self.torch_optimizers = self.experiment.optimizer.make(self.weights.parameters, self.experiment.rates)
        if self.checkpoint is not None:
            state.restore(self.checkpoint, self.saved, self.torch_optimizers)
            self.weights.restored()
        if config["train.compile"]:
            compile_model(self.model)

    def take_up(self, folder: Path) -> None:
        """The weights of a checkpoint, and nothing else of it."""
        state.restore(folder, self.saved)
        self.weights.restored()

    @property
    def saved(self) -> list[Parameter]:
        """The parameters that a checkpoint holds."""
        return [parameter for parameter in self.weights.every if parameter.spec.name in self.experiment.saved]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> TrainingModule:
        """To another device, say: with the models that are no part of what is trained."""
        super()._apply(fn, recurse)
        for model in self.weights.apart() if self.torch_optimizers else ():
            model._apply(fn)
        return self

    @property
    def sharded(self) -> bool:
        """Whether each rank holds a part of the model only, so that all must take part wherever it is used."""
        return self._device_mesh is not None

    def configure_optimizers(self) -> Any:
        return self.torch_optimizers

    @hook
    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        """Callbacks get the loss as `outputs["loss"]`, as they do of Lightning's own loop."""
        step = self.start + batch_idx
        self._begin(step)
        factor = self.experiment.schedule.factor(step, self.experiment.steps)
        for optimizer in self.torch_optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * factor
        loss, norm = torch.stack([self._backward(batch), self._norm()]).tolist()
        for what, value in (("the loss", loss), ("the gradient", norm)):
            if not math.isfinite(value):
                raise Diverged(step, what, loss)
        for optimizer in self.torch_optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.weights.spread()
        self.updates += 1
        self.update = Update(loss, norm, factor * self.experiment.optimizer.lr)
        return {"loss": torch.tensor(loss), "gradient_norm": norm, "learning_rate": self.update.rate}

    def _backward(self, batch: Batch) -> Tensor:
        """The gradient of the global batch's mean loss; returns that loss on this rank's rows."""
        rows = self.micro_rows or max(1, batch.rows)
        if rows >= batch.rows and self._ranks() == 1:
            loss = self._loss(batch).total  # all weights are 1: nothing to weigh
            loss.backward()
            self.weights.gather()
            return loss.detach()
        parts = [batch.micro(start, start + rows) for start in range(0, self._turns(batch, rows) * rows, rows)]
        counts = [self.model.counts(part) for part in parts]
        sums = self._summed(torch.stack([torch.stack([count[name] for count in counts]).sum() for name in counts[0]]))
        shares = dict(zip(counts[0], self._ranks() / sums.clamp(min=1), strict=True))
        total = torch.zeros((), device=self.device)
        for part, count in zip(parts, counts, strict=True):
            # Ranks add up their gradients together, so one without rows computes too, and counts for nothing.
            loss = self._loss(part if part.rows else part.spare())
            scaled = loss.tokens * (count["tokens"] * shares["tokens"])
            for name, auxiliary in loss.auxiliary.items():
                name = name if name in count else "rows"
                scaled = scaled + auxiliary * (count[name] * shares[name])
            with self._apart(part is not parts[-1]):
                self.manual_backward(scaled)
            total += scaled.detach()
        self.weights.gather()
        # Each rank's part is multiplied by the number of ranks, because gradients are averaged over them.
        return self._summed(total) / self._ranks()

    def _turns(self, batch: Batch, rows: int) -> int:
        """Micro batches of this update: one at least, and on all ranks as many where each needs the shards of all."""
        turns = torch.tensor(max(1, -(-batch.rows // rows)), device=self.device)
        if self.sharded and self.micro_rows:
            torch.distributed.all_reduce(turns, op=torch.distributed.ReduceOp.MAX)
        return int(turns)

    def _apart(self, apart: bool) -> AbstractContextManager[Any]:
        """Let ranks add up their gradients once an update, not once a micro batch."""
        if self.sharded:
            cast(Any, self.model).set_requires_gradient_sync(not apart)
        model = self.trainer.strategy.model
        return model.no_sync() if apart and isinstance(model, DistributedDataParallel) else nullcontext()

    def _norm(self) -> Tensor:
        masters = [master for master in self.weights.masters if master.grad is not None]
        if self.clip is None:
            return whole(
                torch.nn.utils.get_total_norm([parameter.grad for parameter in masters if parameter.grad is not None])
            )
        return whole(torch.nn.utils.clip_grad_norm_(masters, self.clip))

    def _ranks(self) -> int:
        return self.trainer.world_size

    def _summed(self, value: Tensor) -> Tensor:
        if self._ranks() > 1:
            torch.distributed.all_reduce(value)
        return value


def compile_model(model: Family, backend: str = "inductor") -> None:
    """Let torch compile a model's forward pass at its first call."""
    from torch import _dynamo

    # What was compiled of a model without hooks must not serve one that is tuned by them.
    _dynamo.config.skip_nnmodule_hook_guards = False
    model.compile(backend=backend)


def _reseed(seed: int, step: int, rank: int) -> None:
    """Seed the global generators at each step, so that dropout repeats after a resume.

    Each by itself: `torch.manual_seed` keeps a stack trace for every device that is not there, 0.7 ms at each call.
    """
    key = hashing.name(seed, f"dropout {step} {rank}") >> 1
    torch.default_generator.manual_seed(key)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed(key)
