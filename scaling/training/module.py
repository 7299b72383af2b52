"""LightningModules: a model of one family with its loss, its optimizers and its schedule.

`scaling train` fits them by a `lightning.Trainer`, and so can anyone: the same module, data module and number of ranks
give the same losses and weights, to the bit. Optimization is manual for what Lightning's automatic one does not do: the
loss is the mean over the targets of the whole global batch, however it is split over micro batches and ranks; nothing
that is not finite reaches the weights; and an optimizer of ours may be two of torch's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Self, cast

import torch
import torch.distributed
from lightning.pytorch import LightningModule
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from scaling.base.batch import Batch
from scaling.base.errors import plural, refuse
from scaling.config.document import Config, of_values
from scaling.data import hashing
from scaling.interop import weights
from scaling.model.family import Family, Loss
from scaling.training.checkpoints import LEARNED, MODEL, FolderIO, gather
from scaling.training.evaluation import Evaluation
from scaling.training.experiment import Experiment, assemble
from scaling.training.machine import flushed
from scaling.training.precision import Weights, laid_out, shard, whole


class Incomplete(Exception):
    """A training that has not done what its result would state."""

    def __init__(self, what: str, count: int | None, planned: int):
        super().__init__(f"{what}: {count} instead of {planned}; the run is not finished")


class Diverged(Exception):
    """A loss or a gradient that is not finite, caught before it reached the weights."""

    def __init__(self, step: int, what: str):
        self.step = step
        super().__init__(f"{what} is not finite at step {step}")


class FamilyModule(LightningModule):
    """A model of one family with its loss, optimizers and schedule, in any `lightning.Trainer`.

    `config` is a resolved config, as plain dicts too, or the experiment that was made of it. One batch of the data
    module is one update of the run, and its `steps` are the run's. It logs `train/loss`, `train/gradient_norm`,
    `train/learning_rate` and what an evaluation measures, as `evaluate/loss` in nats per token.
    """

    def __init__(self, config: Experiment | Config | Mapping[str, Any]):
        super().__init__()
        if isinstance(config, Mapping):
            config = of_values("a checkpoint", config)
        self.experiment = config if isinstance(config, Experiment) else assemble(config)
        self.save_hyperparameters({"config": self.experiment.config.tree}, logger=False)
        self.automatic_optimization = False
        self.measured: dict[str, Any] = {}  # by the last evaluation
        self.recorded = False  # whether a callback of ours hands what is logged to the loggers, in full
        self.torch_optimizers: list[torch.optim.Optimizer] = []
        self.model = self.experiment.initial_model()
        self.teacher: Family | None = None
        if self.experiment.teacher is not None:
            self.teacher = self.experiment.teacher.model().requires_grad_(False)
        if self.experiment.config["trainer.strategy"] != "fsdp":
            self.configure_model()

    @classmethod
    def load_from_checkpoint(cls, checkpoint_path: Any, map_location: Any = None, **given: Any) -> Self:  # type: ignore[override]
        """The module of a checkpoint's config with its weights; no code in it is executed. `given` arguments
        replace those in the checkpoint.
        """
        checkpoint = FolderIO().load_checkpoint(checkpoint_path, map_location)
        what, fix = "its hyperparameters have no config", "name a checkpoint that a module of this package saved"
        refuse("config" not in checkpoint.get(cls.CHECKPOINT_HYPER_PARAMS_KEY, {}), what, fix, file=checkpoint_path)
        given = {key: value for key, value in given.items() if key not in ("strict", "weights_only")}  # always both
        module = cls(**{**checkpoint[cls.CHECKPOINT_HYPER_PARAMS_KEY], **given})
        module.load_state_dict(checkpoint["state_dict"])
        return module

    @property
    def steps(self) -> int:
        """Updates of the whole run, `max_steps` of a Trainer."""
        return self.experiment.steps

    # The model and its optimizers

    def configure_model(self) -> None:
        """Shard the model where the strategy has made a mesh of ranks, and make its optimizers.

        Lightning calls it when the ranks are joined.
        """
        if self.torch_optimizers:
            return
        config = self.experiment.config
        sharded = partial(shard, mesh=self.device_mesh["data_parallel"]) if self.sharded else None  # type: ignore[index]
        precisions = config["trainer.precision"], config["evaluate.precision"]
        self.weights = Weights(self.model, *precisions, sharded, self.experiment.saved)
        self.model = self.weights.trained
        self.torch_optimizers = self.experiment.optimizer.make(self.weights.parameters, self.experiment.rate)
        if config["train.compile"]:
            # What was compiled of a model without hooks must not serve one that is tuned by them.
            torch._dynamo.config.skip_nnmodule_hook_guards = False
            self.model.compile()

    def configure_optimizers(self) -> Any:
        return self.torch_optimizers

    @property
    def sharded(self) -> bool:
        """Whether each rank holds a part of the model only, so that all must take part wherever it is used."""
        return self._device_mesh is not None

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """To another device, say: with the models that are not part of what is trained."""
        super()._apply(fn, recurse)
        for model in (self.weights.full, self.weights.evaluated) if self.torch_optimizers else ():
            if model is not self.weights.trained:
                model._apply(fn)
        return self

    def _saved(self) -> dict[str, Tensor]:
        """The parameters that a checkpoint holds, in float32 where masters are kept."""
        names = self.experiment.saved
        return {MODEL + each.spec.name: each.tensor for each in self.weights.every if each.spec.name in names}

    def state_dict(self, *_: Any, destination: Any = None, prefix: str = "", **__: Any) -> dict[str, Any]:
        state: dict[str, Any] = {} if destination is None else destination  # of a module that has this one as its part
        saved = {prefix + name: tensor for name, tensor in self._saved().items()}
        state |= gather(saved, not self.sharded or self.global_rank == 0)
        return state

    @torch.no_grad()
    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Take up weights of the same names and shapes; what is missing or too many is refused."""
        parameters = self._saved()
        weights.check(state_dict, parameters)
        for name, tensor in parameters.items():
            tensor.copy_(laid_out(state_dict[name], tensor))
        self.weights.round(every=True)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        names = {id(parameter.tensor): parameter.spec.name for parameter in self.weights.parameters}
        checkpoint[LEARNED] = [
            [names[id(tensor)] for group in optimizer.param_groups for tensor in group["params"]]
            for optimizer in self.torch_optimizers
        ]

    # Training

    def setup(self, stage: str) -> None:
        """Refuse what a Trainer cannot decide for a config."""
        own, precision = self.experiment.config["trainer.precision"], self.trainer.precision
        is_other = precision != "32-true" and not own == precision == "bf16-mixed"
        what, fix = f"the config has trainer.precision={own}", "leave it out, and set the config's"
        refuse(is_other, what, fix, key="precision of the Trainer", value=precision)
        what, fix = "torch.compile cannot compile a whole update", "set train.compile=true in the config"
        refuse(self._compiler_ctx is not None, what, fix)
        self._check_end(self.trainer.max_steps)

    def _check_end(self, steps: int) -> None:
        """Refuse to train beyond the last step, where the schedule and the batches end."""
        is_beyond = steps > self.steps and not getattr(self.trainer, "overfit_batches", 0)
        what, fix = f"the config has {plural(self.steps, 'step')}", "pass max_steps=module.steps"
        refuse(is_beyond, what, fix, key="max_steps of the Trainer", value=self.trainer.max_steps)

    def on_train_start(self) -> None:
        self._first = self.trainer.global_step
        self._set_rates(self._first)

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        """One update. Callbacks get the loss as `outputs["loss"]`, as they do of Lightning's automatic optimization."""
        step, one = self.trainer.global_step, self.experiment
        self._check_end(step + 1)
        if one.batches.objective.takes == "windows":  # batches of pairs and examples differ in their tokens
            tokens = batch.tokens.numel() + (0 if batch.source is None else batch.source.numel())
            planned = one.tokens(step + 1) - one.tokens(step)
            if tokens * self.trainer.world_size != planned:
                raise Incomplete(f"tokens of step {step + 1}", tokens * self.trainer.world_size, planned)
        self._begin(step)
        mixed = one.config["trainer.precision"] == "bf16-mixed"
        with flushed(), torch.autocast(self.device.type, torch.bfloat16, enabled=mixed, cache_enabled=False):
            loss, norm = torch.stack([self._backward(batch), self._norm()]).tolist()
            for what, value in (("the loss", loss), ("the gradient", norm)):
                if not math.isfinite(value):
                    raise Diverged(step, what)
            self._update()
        rate = one.schedule.factor(step, self.steps) * one.optimizer.lr
        # Where Lightning hands metrics to loggers: at every step, logging would take a tenth of a small model's time.
        log_interval: int = self.trainer.log_every_n_steps  # type: ignore[attr-defined]
        if step == self._first or (step + 1) % max(1, log_interval) == 0:
            logged = {"train/loss": loss, "train/gradient_norm": norm, "train/learning_rate": rate}
            self.log_dict(logged, logger=not self.recorded)
        self._set_rates(step + 1)
        return {"loss": torch.tensor(loss), "gradient_norm": norm, "learning_rate": rate}

    def _begin(self, step: int) -> None:
        """All that a step draws is a function of its number, so that dropout repeats after a resume.

        Generators are seeded each by itself: `torch.manual_seed` keeps a stack trace for every device that is not
        there, 0.7 ms at each call.
        """
        key = hashing.name(self.experiment.seed, f"dropout {step} {self.global_rank}") >> 1
        torch.default_generator.manual_seed(key)
        if torch.cuda.is_initialized():
            torch.cuda.manual_seed(key)
        for piece in self.model.modules():
            if (at_step := getattr(type(piece), "at_step", None)) is not None:
                at_step(piece, step)

    def _set_rates(self, step: int) -> None:
        factor = self.experiment.schedule.factor(step, self.steps)
        for optimizer in self.torch_optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * factor

    def _update(self) -> None:
        """A step of all optimizers, which counts as one of Lightning's."""
        what = "training_step updates the config's optimizers, and configure_optimizers returns others"
        fix = "write training_step too, or set the config's optimizer"
        refuse(self.trainer.optimizers != self.torch_optimizers, what, fix)
        optimizers = self.optimizers()
        counted = optimizers[0] if isinstance(optimizers, list) else optimizers
        counted.step()
        for optimizer in self.torch_optimizers[1:]:
            optimizer.step()
        for optimizer in self.torch_optimizers:
            optimizer.zero_grad(set_to_none=True)
        if self.weights.separate:
            self.weights.round()

    def _loss(self, batch: Batch) -> Loss:
        """The loss that is minimised: the head's own, and where there is a teacher the distance to its predictions."""
        if self.teacher is None:
            return self.model.loss(batch, self.experiment.config["train.smoothing"])
        return cast(Any, self.experiment.batches.objective).loss(self.model, batch, self.teacher)

    def _backward(self, batch: Batch) -> Tensor:
        """The gradient of the global batch's mean loss, which it returns."""
        rows = self.experiment.config["train.micro_batch"] or max(1, batch.rows)
        if rows >= batch.rows and self.trainer.world_size == 1:
            loss = self._loss(batch).total  # all weights are 1: nothing to weigh
            loss.backward()
            self.weights.gather()
            return loss.detach()
        parts = [batch.micro(start, start + rows) for start in range(0, self._turns(batch, rows) * rows, rows)]
        counts = [self.model.counts(part) for part in parts]
        sums = self._summed(torch.stack([torch.stack([count[name] for count in counts]).sum() for name in counts[0]]))
        shares = dict(zip(counts[0], self.trainer.world_size / sums.clamp(min=1), strict=True))
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
        return self._summed(total) / self.trainer.world_size

    def _turns(self, batch: Batch, rows: int) -> int:
        """Micro batches of this update: one at least, and on all ranks as many where each needs the shards of all."""
        turns = torch.tensor(max(1, -(-batch.rows // rows)), device=self.device)
        if self.sharded and self.experiment.config["train.micro_batch"]:
            torch.distributed.all_reduce(turns, op=torch.distributed.ReduceOp.MAX)
        return int(turns)

    def _apart(self, apart: bool) -> AbstractContextManager[Any]:
        """Let ranks add up their gradients once an update, not once a micro batch."""
        if self.sharded:
            cast(Any, self.model).set_requires_gradient_sync(not apart)
        model = self.trainer.strategy.model
        return model.no_sync() if apart and isinstance(model, DistributedDataParallel) else nullcontext()

    def _norm(self) -> Tensor:
        clip = self.experiment.config["trainer.gradient_clip_val"]
        return whole(torch.nn.utils.clip_grad_norm_(self.weights.masters, math.inf if clip is None else clip))

    def _summed(self, value: Tensor) -> Tensor:
        if self.trainer.world_size > 1:
            torch.distributed.all_reduce(value)
        return value

    # Evaluation

    def on_predict_epoch_start(self) -> None:
        self.weights.evaluated.eval()
        self.weights.round()

    def on_validation_epoch_start(self) -> None:
        step: int | None = getattr(self.trainer.datamodule, "evaluated", None)  # type: ignore[attr-defined]
        self.evaluation = Evaluation(*self.experiment.evaluation(step), self.trainer.world_size)
        self.on_predict_epoch_start()

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        mixed = self.weights.evaluation == "bf16-mixed"
        with flushed(), torch.autocast(self.device.type, torch.bfloat16, enabled=mixed):
            self.evaluation.add(self.weights.evaluated, batch)

    def on_validation_epoch_end(self) -> None:
        for module in self.weights.evaluated.modules():
            # Shards that were gathered stay so without a backward pass, and the next pass must gather them anew.
            getattr(module, "reshard", lambda: None)()
        self.measured = {**self.evaluation.measured(), "evaluation_precision": self.weights.evaluation}
        numbers = {f"evaluate/{key}": value for key, value in self.measured.items() if isinstance(value, int | float)}
        self.log_dict({key: float(value) for key, value in numbers.items()}, logger=not self.recorded)

    on_test_epoch_start, test_step = on_validation_epoch_start, validation_step
    on_test_epoch_end = on_validation_epoch_end

    def forward(self, batch: Batch) -> Tensor:
        """The predictions' logits."""
        return self.weights.evaluated.logits(batch)


class EncoderModule(FamilyModule):
    """A masked language model or a classifier."""


class DecoderModule(FamilyModule):
    """A language model."""


class EncoderDecoderModule(FamilyModule):
    """A sequence-to-sequence model."""


MODULES = {"encoder": EncoderModule, "decoder": DecoderModule, "encoder_decoder": EncoderDecoderModule}
