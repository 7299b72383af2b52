"""The life of a run: assembled, found in the ledger or claimed, trained from its last checkpoint, published."""

from __future__ import annotations

import errno
import logging
import math
import re
import signal
import threading
import time
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import ModelSummary, ProgressBar
from lightning.pytorch.loggers import Logger
from lightning.pytorch.strategies import Strategy

from scaling.base import signals
from scaling.base.errors import ScalingError, refuse
from scaling.base.signals import LOST, PRUNE, Stopped
from scaling.data.module import DataModule
from scaling.ledger import Attempt, Checkpoint, Ledger, run_id
from scaling.ledger.checkpoint import find
from scaling.ledger.run import Outcome
from scaling.training.callbacks import Best, LedgerCallback, Listener, ProgressDisplay, norms
from scaling.training.checkpoints import FolderIO, Sharded
from scaling.training.experiment import Experiment, assemble
from scaling.training.loggers import report_again
from scaling.training.machine import chosen, cores, environment, keep_freed, suited
from scaling.training.module import MODULES, Diverged, Incomplete
from scaling.training.ranks import broadcast, cluster, first, joined, launched, local_count, rank_count, start_ranks

if TYPE_CHECKING:
    from scaling.config.document import Config

# The messages of torch, its backends and the C++ library in a RuntimeError, which has no type of its own for it.
MESSAGES = re.compile(
    r"DefaultCPUAllocator|std::bad_alloc|out of memory|cannot allocate memory|not enough memory|ALLOC_FAILED", re.I
)

# Lightning's callbacks that change a training: a run of the ledger is what its config states.
CHANGING = {
    *("BaseFinetuning", "BatchSizeFinder", "GradientAccumulationScheduler", "LearningRateFinder", "ModelPruning"),
    *("StochasticWeightAveraging", "WeightAveraging"),
}
TRAINING = threading.RLock()  # one training at a time: generators, threads and warnings are the process's


def train(experiment: Experiment, **observers: Any) -> dict[str, Any]:
    """The result of a run: the published one, or that of training it now. `observers` are those of `train_run`."""
    ledger = Ledger.create(experiment.config["runs"]) if first() else None
    result = None if ledger is None or launched() else ledger.result(ledger.add(experiment.spec))
    if result is None:
        trained = train_run(experiment, ledger, **observers)
        if trained is not None or ledger is None:
            return {**(trained or {}), "already": False}
        result = ledger.result(run_id(experiment.spec))
    if ledger is None or result is None:
        fix = "wait for it, or end it; `scaling show --json` has its host and its pid"
        raise ScalingError("another worker trains this run", key="run", value=run_id(experiment.spec), fix=fix)
    report_again(experiment, ledger, result)
    return {**result, "already": True}


def train_run(
    experiment: Experiment,
    ledger: Ledger | None,
    *,
    progress: bool = False,
    listeners: Collection[Listener] = (),
    callbacks: Collection[Callback] = (),
    loggers: Collection[Logger] = (),
) -> dict[str, Any] | None:
    """The result of training a run from its last checkpoint, or from its trunk's; None where another worker does.
    `progress` is shown to a person; `listeners` get each entry of the log; callbacks and loggers are a person's own.

    Only the first of several ranks has a ledger and a result; the others return nothing. A trunk has no result: it is
    trained as far as its `steps`, and keeps those that branches start from.
    """
    for each in (*callbacks, *loggers):
        what = "expected a callback or a logger of Lightning"
        refuse(not isinstance(each, Callback | Logger), what, "pass an instance", key="callbacks, logger", value=each)
        is_changing = not CHANGING.isdisjoint(kind.__name__ for kind in type(each).__mro__)
        what, fix = "it changes what the config states", "leave it out, or fit scaling.module in your own Trainer"
        refuse(is_changing, what, fix, key="callbacks", value=type(each).__name__)
    if not launched() and rank_count(experiment.config) > 1:
        if callbacks or loggers:
            what = "callbacks and loggers cannot be passed to several ranks"
            raise experiment.config.error("trainer.devices", what, "take trainer.devices=1")
        count, steps = rank_count(experiment.config), None if experiment.horizon else experiment.steps
        threads = suited(experiment, max(1, cores() // count))
        start_ranks(count, threads, _train_rank, experiment.config, steps, progress)
        return {} if ledger is None or not experiment.horizon else ledger.result(ledger.add(experiment.spec))
    with TRAINING, joined(), chosen(experiment):
        attempt = None if ledger is None else ledger.claim(ledger.add(experiment.spec))
        if not broadcast(attempt is not None):
            return None
        with attempt or nullcontext():
            try:
                start = broadcast(None if ledger is None or attempt is None else _start(experiment, ledger, attempt))
                with ProgressDisplay() if progress and first() else nullcontext() as display:
                    shown = listeners if display is None else (*listeners, display)
                    return _trained(experiment, attempt, start, shown, callbacks, loggers)
            except Stopped as error:
                if error.signal != LOST:
                    raise
                return None
            except Exception as error:
                if not _is_out_of_memory(error):
                    raise
                if attempt is not None:
                    attempt.end("out_of_memory", str(error).partition("\n")[0] or type(error).__name__, error)
                raise _less_memory(experiment) from error


def _train_rank(config: Config, steps: int | None, progress: bool) -> None:
    """Train as one of several ranks, to the run's end, or its trunk up to `steps`."""
    experiment, ledger = assemble(config), Ledger.create(config["runs"]) if first() else None
    if steps is not None and (trunk := experiment.trunk()) is not None:
        experiment = replace(trunk[0], steps=steps)
    train_run(experiment, ledger, progress=progress)


def _start(experiment: Experiment, ledger: Ledger, attempt: Attempt) -> Checkpoint | None:
    """The checkpoint that training goes on from: the run's last one, or the one at which it branches off its trunk."""

    def belongs(candidate: Checkpoint) -> bool:
        """Whether it is of a step of this experiment, after the tokens of that many steps."""
        within = candidate.step <= experiment.steps or not experiment.horizon
        return within and candidate.note.get("tokens") == experiment.tokens(candidate.step)

    def resumable(candidate: Checkpoint) -> bool:
        """Whether the checkpoint of the best step so far is there too, where a run may end early."""
        best = None if experiment.patience is None else candidate.note.get("best", {}).get("step")
        return belongs(candidate) and (best in (None, candidate.step) or find(attempt.run, best) is not None)

    saved, trunk = attempt.resume(resumable), experiment.trunk()
    if saved is not None or trunk is None:
        return saved
    branch = ledger.checkpoint(run_id(trunk[0].spec), trunk[1])
    return branch if branch is not None and belongs(branch) else None


def _is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or one that it came from, is that of an allocation that failed."""
    return error is not None and (
        isinstance(error, torch.OutOfMemoryError | MemoryError)
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
        or (isinstance(error, RuntimeError) and MESSAGES.search(str(error)) is not None)
        or _is_out_of_memory(error.__cause__)
    )


def _less_memory(experiment: Experiment) -> ScalingError:
    """The one line that is printed: with fewer rows at once, of which the batch is a multiple, it may fit."""
    micro = experiment.config["train.micro_batch"]
    rows = math.gcd(*experiment.size.sizes) // rank_count(experiment.config)
    varied = experiment.batches.objective.takes != "windows"  # batches of pairs and examples are split anyhow
    fewer = (count for count in range((micro or rows) // 2, 0, -1) if varied or rows % count == 0)
    fixes = (f"accumulate: train.micro_batch={count}" for count in fewer)
    fix = next(fixes, "take more devices, or trainer.precision=bf16-true")
    return ScalingError("out of memory", key="train.micro_batch", value=micro, fix=fix, code=1)


def _trained(
    experiment: Experiment,
    attempt: Attempt | None,
    start: Checkpoint | None,
    listeners: Collection[Listener],
    callbacks: Collection[Callback],
    loggers: Collection[Logger],
) -> dict[str, Any]:
    """Train from a checkpoint, and publish what comes out; ranks other than the first return nothing.

    Once training has begun, a signal counts where the state is saved: between steps, or when the result is published.
    """
    started, steps, horizon = time.perf_counter(), experiment.steps, experiment.horizon
    begin, folder = (0, None) if start is None else (start.step, start.folder)
    if signals.process.command:
        keep_freed()
    is_own = start is not None and start.folder.parents[1].name == run_id(experiment.spec)
    pinned = broadcast(None if attempt is None else attempt.pinned)
    best = Best(**start.note.get("best", {})) if start is not None and is_own else Best()
    recorder = LedgerCallback(experiment, attempt, pinned, best, listeners, loggers)
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    with closing(recorder), signals.listening(), _quiet(), torch.random.fork_rng(devices):
        signals.process.pruned = False
        trainer = _trainer(experiment, [recorder, *callbacks], recorder.loggers)
        module = MODULES[experiment.family](experiment)
        # A step more than there is, so that Lightning takes no checkpoint for one of the end of an epoch.
        data = DataModule(experiment.batches, experiment.evaluation, steps + 1)

        with signals.deferred():
            outcome: Outcome = "finished"
            end, stopped = begin, None
            try:
                # A signal cut the evaluation off, or the trunk ended where this run does.
                if begin in experiment.evaluated and best.last != begin and (is_own or begin == steps):
                    data.evaluated = begin
                    trainer.validate(module, data, ckpt_path=folder, verbose=False)
                    recorder.evaluate(begin, module.measured)
                if begin < steps and not recorder.exhausted:
                    trainer.fit(module, data, ckpt_path=folder)
                    end = trainer.global_step
                best_of = {} if experiment.patience is None else {"best_step": recorder.best.step}
                result = {**recorder.best.measured, **best_of, "step": end}
                if end != steps and not recorder.exhausted:
                    if not (trainer.should_stop and callbacks):
                        raise Incomplete("updates applied", end, steps)
                    stopped = f"a callback ended it at step {end}; without that callback it goes on"
                elif attempt is not None and begin < end != recorder.step:
                    raise Incomplete("step of the last checkpoint", recorder.step, end)
                elif begin == 0 and recorder.norms == norms(module):
                    # The last steps of a resumed run may have a rate of zero; those of a whole run are a mistake.
                    what, lr = f"none of the weights has changed in {end:,} updates", experiment.optimizer.lr
                    raise ScalingError(what, key="optimizer.lr", value=lr, fix="take a larger learning rate")
                elif not horizon:
                    stopped = f"trained to step {steps}; it continues where a branch needs more"
                elif not math.isfinite(result.get("loss", math.nan)):
                    raise Diverged(end, "the held-out loss")
            except Diverged as error:
                if not horizon:
                    raise
                outcome, result = "diverged", {"loss": None, "step": error.step, "reason": str(error)}
            except Stopped as error:
                is_pruned = error.signal == PRUNE
                if error.step is not None and error.signal == signal.SIGTERM:
                    # Only ranks that agreed on a step ask one another what the signal means.
                    is_pruned = broadcast(recorder.wandb is not None and recorder.wandb.pruned())
                if not (is_pruned and horizon):
                    if attempt is not None:
                        attempt.end("stopped", str(error))
                    raise
                signals.process.received, signals.process.raised = 0, False  # it meant this run alone
                reason = "stopped early by its sweep" + ("" if error.step is None else f" at step {error.step}")
                outcome, result = "pruned", {"loss": None, **module.measured, "step": error.step, "reason": reason}
            if attempt is None:
                return {}
            if stopped is not None:
                recorder.result = {"outcome": "stopped", "reason": stopped}
                attempt.end("stopped", stopped)
                return {"run": attempt.run_id}
            seconds = time.perf_counter() - started
            tokens = experiment.tokens(max(begin, result["step"])) - experiment.tokens(begin)
            circumstances = {
                **environment(),
                "ranks": trainer.world_size,
                "seconds": seconds,
                "from_step": begin,
                "tokens_per_second": tokens / seconds or None,  # with its start, evaluations and checkpoints
            }
            if outcome == "finished":
                result |= _spent(experiment, result["step"])
            recorder.result = attempt.finish(outcome, {**result, "circumstances": circumstances})
    return dict(recorder.result)


class PlainTrainer(Trainer):
    """Lightning's Trainer with the arguments that it is given. By its own name it takes others from the environment, as
    PL_TRAINER_MAX_STEPS.
    """


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Lightning's advice (workers, loggers, tips), which is about things that are ours to decide."""
    levels = {each: each.level for each in map(logging.getLogger, ("lightning.pytorch", "lightning.fabric"))}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="lightning")
        # Of operations in place on what a block returns; the stream is never changed in place.
        warnings.filterwarnings("ignore", "FSDP2-wrapped module", UserWarning)
        try:
            for each in levels:
                each.setLevel(logging.CRITICAL + 1)
            yield
        finally:
            for each, level in levels.items():
                each.setLevel(level)


def _trainer(experiment: Experiment, callbacks: Sequence[Callback], loggers: Collection[Logger]) -> Trainer:
    config, count = experiment.config, rank_count(experiment.config)
    strategy: str | Strategy = "auto" if count == 1 else "ddp"
    if config["trainer.strategy"] == "fsdp":
        strategy = Sharded(data_parallel_size=count, tensor_parallel_size=1)
    return PlainTrainer(
        accelerator="gpu" if torch.cuda.is_available() else "cpu",
        devices=local_count(),
        num_nodes=count // local_count(),
        strategy=strategy,
        plugins=[FolderIO(), cluster()],
        max_steps=experiment.steps,
        max_epochs=1,
        callbacks=list(callbacks),
        logger=list(loggers) or False,
        enable_autolog_hparams=False,  # they have the run's spec
        log_every_n_steps=config["log.every"],
        enable_progress_bar=any(isinstance(callback, ProgressBar) for callback in callbacks),
        enable_model_summary=any(isinstance(callback, ModelSummary) for callback in callbacks),
        num_sanity_val_steps=0,
        val_check_interval=experiment.steps + 1,  # `Evaluate` sets when
        check_val_every_n_epoch=None,
        use_distributed_sampler=False,
        inference_mode=False,  # what a model keeps of its positions serves training too
    )


def _spent(experiment: Experiment, step: int) -> dict[str, Any]:
    """Tokens and compute C of a run's steps, and its parameters N."""
    cost, tokens = experiment.cost, experiment.tokens(step)
    return {
        "tokens": tokens,
        "passes": experiment.batches.passes(step),
        "N": {"non_embedding": cost.parameters_non_embedding, "total": cost.parameters},
        "C": {
            "exact": cost.flops_train_per_token * tokens,
            **{name: per_token * tokens for name, per_token in cost.approximations.items()},
        },
    }
