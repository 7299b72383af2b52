"""The life of a run: assembled, found in the ledger or claimed, trained from its last checkpoint, published."""

from __future__ import annotations

import logging
import math
import signal
import time
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from lightning.fabric.plugins.environments import LightningEnvironment, TorchElasticEnvironment
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import ModelSummary, ProgressBar
from lightning.pytorch.strategies import Strategy

from scaling.config import Config
from scaling.data.module import DataModule
from scaling.errors import ScalingError
from scaling.ledger import Attempt, Checkpoint, Ledger, run_id
from scaling.ledger.run import Outcome
from scaling.training import signals
from scaling.training.callbacks import Best, Evaluate, Patience, Record, Save, Superseded, Tell, norms
from scaling.training.checkpoints import FolderIO, Sharded
from scaling.training.environment import environment
from scaling.training.experiment import Experiment, assemble
from scaling.training.loggers import Loggers, logged, report_again
from scaling.training.module import MODULES, Diverged, Incomplete
from scaling.training.out_of_memory import advice, is_out_of_memory
from scaling.training.processor import keep_freed
from scaling.training.ranks import Ranks, first, joined, launched, rank_count
from scaling.training.signals import PRUNE, Stopped
from scaling.training.supervisor import supervise
from scaling.training.threads import chosen, cores, suited

if TYPE_CHECKING:
    from lightning.pytorch.loggers import Logger

PLUGINS = {"32-true": "32-true", "bf16-mixed": "bf16-mixed", "bf16-true": "32-true"}  # ours rounds masters itself


@dataclass(frozen=True)
class Observers:
    """Who follows a run while it trains: `tell` gets each entry of the log; the user's own callbacks and loggers."""

    tell: Collection[Tell] = ()
    callbacks: Collection[Callback] = ()
    loggers: Collection[Logger] = ()

    @property
    def live_here(self) -> bool:
        """Whether some of them are objects of this process, which ranks in other processes cannot call."""
        return bool(self.callbacks or self.loggers)


NO_OBSERVERS = Observers()


class Pruned(Exception):
    """A sweep stopped the run early; `evaluation` is its last one."""

    def __init__(self, step: int | None, evaluation: Mapping[str, Any]):
        self.step, self.evaluation = step, evaluation
        super().__init__("stopped early by its sweep" + ("" if step is None else f" at step {step}"))


class Ended(Exception):
    """A callback of the user's ended the run before its last step."""

    def __init__(self, step: int):
        super().__init__(f"a callback ended it at step {step}; without that callback it goes on")


def train(config: Config, observers: Observers = NO_OBSERVERS, again: bool = False) -> dict[str, Any]:
    """The result of the run that a config describes: the published one, or that of training it now.

    With `again` a run that is done is trained again; the result has the differences from the published one.
    """
    experiment = assemble(config)
    ledger = _ledger(config)
    result = None if ledger is None or launched() else ledger.result(ledger.add(experiment.spec))
    if ledger is not None and result is not None and not again:
        report_again(experiment, ledger, result)
        return {**result, "already": True}
    trained = train_run(experiment, ledger, observers, again)
    if trained is not None or ledger is None:
        repeated = {} if ledger is None or result is None else {"differences": _differences(ledger, result["run"])}
        return {**(trained or {}), "already": False, **repeated}
    result = ledger.result(run_id(experiment.spec))
    if result is not None and not again:
        return {**result, "already": True}
    raise ScalingError(
        "another worker is at this run",
        key="run",
        value=run_id(experiment.spec),
        fix="wait for it, or end it; `scaling show --json` has its host and its pid",
    )


def _differences(ledger: Ledger, run: str) -> dict[str, Any]:
    """Where the newest attempt differs from the published result: by key, the published value and its own."""
    return dict((ledger.attempts(run)[-1].end or {}).get("differences", {}))


def train_run(
    experiment: Experiment, ledger: Ledger | None, observers: Observers = NO_OBSERVERS, again: bool = False
) -> dict[str, Any] | None:
    """The result of training a run from its last checkpoint, or from its trunk's; None where another worker does.

    With `again` a run that is done is trained again, from its first step. Only the first of several ranks has a ledger
    and a result; the others return nothing.
    """
    if ledger is not None and _started(experiment, again, observers):
        return ledger.result(ledger.add(experiment.spec))
    with joined() as ranks, chosen(experiment), _claimed(experiment, ledger, ranks, again) as claim:
        if claim is None:
            return None
        try:
            return _trained(experiment, ranks, *claim, observers)
        except Superseded:
            return None


def train_trunk(experiment: Experiment, ledger: Ledger | None, observers: Observers = NO_OBSERVERS) -> bool:
    """Train a trunk as far as required, keeping the steps that branches start from; False where another does."""
    if _started(experiment):
        return True
    with joined() as ranks, chosen(experiment), _claimed(experiment, ledger, ranks) as claim:
        if claim is None:
            return False
        attempt, start = claim
        with logged(experiment, attempt, observers.loggers) as loggers, _whole() as whole:
            try:
                _fitted(experiment, ranks, attempt, start, observers, loggers, whole)
            except Superseded:
                return False
            reason = f"trained to step {experiment.steps}; it continues where a branch needs more"
            loggers.end({"outcome": "stopped", "reason": reason})
            if attempt is not None:
                attempt.end("stopped", reason)
    return True


def grow(config: Config, steps: int, observers: Observers = NO_OBSERVERS) -> None:
    """Train the trunk of the run that a config describes up to a step."""
    trunk = assemble(config).trunk()
    if trunk is not None:
        train_trunk(replace(trunk[0], steps=steps), _ledger(config), observers)


def _ledger(config: Config) -> Ledger | None:
    """The ledger, for the first rank alone."""
    return Ledger.create(config["runs"]) if first() else None


def _started(experiment: Experiment, again: bool = False, observers: Observers = NO_OBSERVERS) -> bool:
    """Where the run takes several ranks and this is none of them: start them, and return True."""
    if launched() or (ranks := rank_count(experiment.config)) == 1:
        return False
    if observers.live_here:
        raise experiment.config.error(
            "trainer.devices",
            "callbacks and loggers of this process cannot join several others",
            "take trainer.devices=1",
        )
    # Ranks read a saved config, which no longer has what the command line set.
    config = experiment.config.varied({"log.name": experiment.name})
    threads = suited(experiment, max(1, cores() // ranks))
    supervise(config, ranks, None if experiment.horizon else experiment.steps, again, threads=threads)
    return True


@contextmanager
def _claimed(
    experiment: Experiment, ledger: Ledger | None, ranks: Ranks, again: bool = False
) -> Iterator[tuple[Attempt | None, Checkpoint | None] | None]:
    """The first rank's attempt, and the checkpoint that all start from; None where another worker has the run."""
    attempt = None if ledger is None else ledger.claim(ledger.add(experiment.spec), again=again)
    if not ranks.broadcast(attempt is not None):
        yield None
        return
    with attempt or nullcontext(), _within_memory(experiment, attempt):
        saved = None
        if ledger is not None and attempt is not None:
            saved = attempt.resume(lambda candidate: _belongs(candidate, experiment) and _has_best(attempt, candidate))
            if saved is None and not attempt.anew:
                saved = _branch(ledger, experiment)
        place = ranks.broadcast(None if saved is None else [saved.step, str(saved.folder), saved.note])
        yield attempt, None if place is None else Checkpoint(place[0], Path(place[1]), place[2])


def _belongs(checkpoint: Checkpoint, experiment: Experiment) -> bool:
    """Whether a checkpoint can be of this experiment: of one of its steps, after the tokens of that many steps."""
    within = checkpoint.step <= experiment.steps or not experiment.horizon
    return within and checkpoint.note.get("tokens") == experiment.tokens(checkpoint.step)


def _has_best(attempt: Attempt, candidate: Checkpoint) -> bool:
    """Whether the checkpoint of the best step so far is there too, where a run may end early."""
    best = candidate.note.get("patience", {}).get("best_step")
    return best in (None, candidate.step) or attempt.saved(best) is not None


@contextmanager
def _within_memory(experiment: Experiment, attempt: Attempt | None) -> Iterator[None]:
    """Where memory runs out, the attempt ends as such, and the error suggests what may fit."""
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        if attempt is not None:
            attempt.end("out_of_memory", str(error).partition("\n")[0] or type(error).__name__, error)
        raise advice(experiment) from error


def _branch(ledger: Ledger, experiment: Experiment) -> Checkpoint | None:
    """The trunk's checkpoint at which this run branches off, where there is one."""
    trunk = experiment.trunk()
    start = None if trunk is None else ledger.checkpoint(run_id(trunk[0].spec), trunk[1])
    return start if start is not None and _belongs(start, experiment) else None


def _trained(
    experiment: Experiment, ranks: Ranks, attempt: Attempt | None, start: Checkpoint | None, observers: Observers
) -> dict[str, Any]:
    """Train, and publish what comes out; ranks other than the first return nothing."""
    started = time.perf_counter()
    outcome: Outcome = "finished"
    with logged(experiment, attempt, observers.loggers) as loggers, _whole() as whole:
        try:
            result = _fitted(experiment, ranks, attempt, start, observers, loggers, whole)
        except Diverged as error:
            outcome, result = "diverged", {"loss": None, "step": error.step, "reason": str(error)}
        except Pruned as error:
            outcome, result = "pruned", {"loss": None, **error.evaluation, "step": error.step, "reason": str(error)}
        except Ended as error:
            loggers.end({"outcome": "stopped", "reason": str(error)})
            if attempt is None:
                return {}
            attempt.end("stopped", str(error))
            return {"run": attempt.run_id}
        if attempt is None:
            return {}
        if outcome == "finished":
            result = _result(experiment, result)
        first, seconds = 0 if start is None else start.step, time.perf_counter() - started
        tokens = experiment.tokens(max(first, result["step"])) - experiment.tokens(first)
        circumstances = {
            **environment(),
            "ranks": ranks.count,
            "seconds": seconds,
            "from_step": first,
            "tokens_per_second": tokens / seconds or None,  # with its start, evaluations and checkpoints
        }
        verdict = attempt.finish(outcome, {**result, "circumstances": circumstances})
        loggers.end(verdict.stands)
    return dict(verdict.stands)


@contextmanager
def _whole() -> Iterator[ExitStack]:
    """Once training has begun (`signals.deferred` is entered here), a signal counts where the state is saved: between
    steps, or when what came out is published.
    """
    with signals.listening(), ExitStack() as stack:
        yield stack


def _fitted(
    experiment: Experiment,
    ranks: Ranks,
    attempt: Attempt | None,
    start: Checkpoint | None,
    observers: Observers,
    loggers: Loggers,
    whole: ExitStack,
) -> dict[str, Any]:
    """Train from a checkpoint to the end; the last evaluation."""
    begin, folder = (0, None) if start is None else (start.step, start.folder)
    keep_freed()
    signals.begin_run()
    with _quiet():
        patience = None if experiment.patience is None else Patience(experiment.patience, ranks.broadcast, _best(start))
        pinned, due = ranks.broadcast(
            [[], False] if attempt is None else [sorted(attempt.pinned), _is_due(attempt, start)]
        )
        # The log may know of an evaluation that came after the checkpoint had been saved, and the checkpoint does not.
        due = due or (patience is not None and patience.best.step != begin)
        record = Record(experiment, loggers, observers.tell if ranks.first else ())
        save = Save(experiment, attempt, pinned, patience)
        callbacks = [Evaluate(experiment.evaluated, due), record, *([patience] if patience else []), save]
        trainer = _trainer(experiment, ranks, [*callbacks, *observers.callbacks], loggers.loggers)
        module = MODULES[experiment.family](experiment)
        # A step more than there is, so that Lightning takes no checkpoint for one of the end of an epoch.
        data = DataModule(experiment.batches, experiment.evaluation, experiment.steps + 1)
        whole.enter_context(signals.deferred())
        end = begin
        try:
            if begin < experiment.steps and not (patience is not None and patience.exhausted):
                trainer.fit(module, data, ckpt_path=folder)
                end = trainer.global_step
            elif experiment.horizon:
                data.evaluated = begin
                trainer.validate(module, data, ckpt_path=folder, verbose=False)
                record.write_evaluation(begin, module.measured)
                if patience is not None and due and begin in experiment.evaluated:
                    patience.count(begin, module.measured)
            exhausted = patience is not None and patience.exhausted
            best = None if patience is None else patience.best.best_step
            if experiment.horizon and best is not None and best != end:
                data.evaluated = best
                trainer.validate(module, data, ckpt_path=_saved(ranks, attempt, best), verbose=False)
        except Stopped as error:
            # Only ranks that agreed on a step ask one another what the signal means.
            agreed = error.step is not None and error.signal == signal.SIGTERM
            if error.signal == PRUNE or (agreed and ranks.broadcast(loggers.pruned())):
                signals.meant_the_run()
                raise Pruned(error.step, getattr(module, "measured", {})) from None
            if attempt is not None:
                attempt.end("stopped", str(error))
            raise
        if end != experiment.steps and not exhausted:
            if trainer.should_stop and observers.callbacks:
                raise Ended(end)
            raise Incomplete("updates applied", end, experiment.steps)
        if attempt is not None and begin < end != save.step:
            raise Incomplete("step of the last checkpoint", save.step, end)
        # The last steps of a resumed run may have a rate of zero; a whole run whose weights stay as drawn is a mistake.
        if begin == 0 and save.norms == norms(module):
            what = f"none of the weights has changed in {end:,} updates"
            lr = experiment.optimizer.lr
            raise ScalingError(what, key="optimizer.lr", value=lr, fix="take a larger learning rate")
        if not experiment.horizon:
            return {"step": end}
        if ranks.first and not math.isfinite(module.measured["loss"]):
            raise Diverged(end, "the held-out loss", module.measured["loss"])
    return {**module.measured, **({} if best is None else {"best_step": best}), "step": end}


def _best(start: Checkpoint | None) -> Best:
    """What the checkpoint that training goes on from knows of the evaluations before it."""
    return Best(**({} if start is None else start.note.get("patience", {})))


def _saved(ranks: Ranks, attempt: Attempt | None, step: int) -> str:
    """The checkpoint of a step, on all ranks."""
    saved = None if attempt is None else attempt.saved(step)
    folder = ranks.broadcast(None if saved is None else str(saved.folder))
    if folder is None:
        raise Incomplete(f"checkpoint of step {step}, the best", None, 1)
    return folder


def _is_due(attempt: Attempt, start: Checkpoint | None) -> bool:
    """Whether the step that an earlier attempt saved was to be evaluated and was not: a signal came before."""
    if start is None or not start.folder.is_relative_to(attempt.run):
        return False
    return not any(entry["kind"] == "evaluate" and entry.get("step") == start.step for entry in attempt.history())


class PlainTrainer(Trainer):
    """Lightning's Trainer with the arguments that it is given. By its own name it takes others from the environment, as
    PL_TRAINER_MAX_STEPS.
    """


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Lightning's advice (workers, loggers, tips), which is about things that are ours to decide."""
    names = ("lightning.pytorch", "lightning.fabric")
    levels = [logging.getLogger(name).level for name in names]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="lightning")
        for name in names:
            logging.getLogger(name).setLevel(logging.ERROR)
        try:
            yield
        finally:
            for name, level in zip(names, levels, strict=True):
                logging.getLogger(name).setLevel(level)


def _trainer(
    experiment: Experiment, ranks: Ranks, callbacks: Sequence[Callback], loggers: Collection[Logger]
) -> Trainer:
    config = experiment.config
    return PlainTrainer(
        accelerator="gpu" if torch.cuda.is_available() else "cpu",
        devices=ranks.local,
        num_nodes=ranks.machines,
        strategy=_strategy(experiment, ranks),
        plugins=[FolderIO(), LightningEnvironment() if ranks.count == 1 else TorchElasticEnvironment()],
        precision=PLUGINS[config["trainer.precision"]],  # type: ignore[arg-type]
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


def _strategy(experiment: Experiment, ranks: Ranks) -> str | Strategy:
    if ranks.count == 1:
        return "auto"
    if experiment.config["trainer.strategy"] != "fsdp":
        return "ddp"
    return Sharded(data_parallel_size=ranks.count, tensor_parallel_size=1)


def _result(experiment: Experiment, evaluation: Mapping[str, Any]) -> dict[str, Any]:
    cost = experiment.cost
    tokens = experiment.tokens(evaluation["step"])
    return {
        **evaluation,
        "tokens": tokens,
        "passes": experiment.batches.passes(evaluation["step"]),
        "N": {"non_embedding": cost.parameters_non_embedding, "total": cost.parameters},
        "C": {
            "exact": cost.flops_train_per_token * tokens,
            **{name: per_token * tokens for name, per_token in cost.approximations.items()},
        },
    }
