"""The life of a run: assembled, found in the ledger or claimed, trained from its last checkpoint, published."""

from __future__ import annotations

import logging
import os
import platform
import time
import warnings
from collections.abc import Callable, Collection, Mapping
from importlib.metadata import version
from typing import Any

import torch
from lightning import Trainer

from scaling.config import Config
from scaling.data.module import DataModule
from scaling.errors import ScalingError
from scaling.ledger import Attempt, Checkpoint, Ledger, run_id
from scaling.train import state
from scaling.train.experiment import Experiment, assemble
from scaling.train.module import MODULES, Diverged
from scaling.train.parametrization import initialise
from scaling.train.recorder import Recorder, Stopped
from scaling.train.signals import Signals

PLUGINS = {"float32": "32-true", "bf16_autocast": "bf16-mixed", "bf16": "32-true"}

Tell = Callable[[Mapping[str, Any]], None]


def train(config: Config, tell: Collection[Tell] = ()) -> dict[str, Any]:
    """The result of the run that a config describes: the one that stands, or that of training it now."""
    experiment = assemble(config)
    ledger = Ledger.create(config["runs"])
    known = ledger.result(ledger.add(experiment.spec))
    if known is not None:
        return {**known, "already": True}
    found = train_run(experiment, ledger, tell)
    if found is None:
        raise ScalingError(
            "another worker is at this run",
            key="run",
            value=run_id(experiment.spec),
            mend="wait for it, or, if it is dead, three minutes for its lease to run out",
        )
    return {**found, "already": False}


def train_run(experiment: Experiment, ledger: Ledger, tell: Collection[Tell] = ()) -> dict[str, Any] | None:
    """The result of training a run from its last checkpoint, or from its trunk's; None where another worker does."""
    attempt = ledger.claim(ledger.add(experiment.spec))
    if attempt is None:
        return None
    with attempt:
        return _trained(experiment, attempt, attempt.resume() or _branch(ledger, experiment), tell)


def _branch(ledger: Ledger, experiment: Experiment) -> Checkpoint | None:
    """The trunk's checkpoint at which this run branches off, where there is one."""
    found = experiment.trunk()
    return None if found is None else ledger.checkpoint(run_id(found[0].spec), found[1])


def train_trunk(experiment: Experiment, ledger: Ledger, tell: Collection[Tell] = ()) -> bool:
    """Train a trunk as far as it is wanted, keeping the steps that branches start from; False where another does."""
    attempt = ledger.claim(ledger.add(experiment.spec))
    if attempt is None:
        return False
    with attempt:
        _fitted(experiment, attempt, attempt.resume(), tell)
        attempt.end("stopped", f"grown to step {experiment.steps}; it goes on where a branch needs more")
    return True


def _trained(
    experiment: Experiment, attempt: Attempt, start: Checkpoint | None, tell: Collection[Tell]
) -> dict[str, Any]:
    begun = time.perf_counter()
    try:
        found = _fitted(experiment, attempt, start, tell)
    except Diverged as error:
        attempt.log.write({"kind": "diverged", "step": error.step, "what": error.what})
        return dict(attempt.finish("diverged", {"loss": None, "step": error.step, "reason": str(error)}).stands)
    circumstances = {
        **surroundings(),
        "seconds": time.perf_counter() - begun,
        "from_step": 0 if start is None else start.step,
    }
    return dict(attempt.finish("finished", {**_result(experiment, found), "circumstances": circumstances}).stands)


def _fitted(
    experiment: Experiment, attempt: Attempt, start: Checkpoint | None, tell: Collection[Tell]
) -> dict[str, Any]:
    """Train from a checkpoint to the end; the last evaluation."""
    first = 0 if start is None else start.step
    with Signals() as signals:
        recorder = Recorder(experiment, attempt, signals, tell)
        trainer = _trainer(experiment, recorder)
        model = initialise(experiment.model(), experiment.parametrization, experiment.seed)
        module = MODULES[model.family](experiment, model, first)
        if start is not None:
            state.restore(start.folder, module.weights.parameters, module.torch_optimizers)
            module.weights.spread()
        data = DataModule(
            experiment.batches, experiment.validation, experiment.evaluations, start=first, stop=experiment.steps
        )
        try:
            if first < experiment.steps:
                trainer.fit(module, data)
            if experiment.horizon and not recorder.latest:
                recorder.evaluate_now(experiment.steps, module)
        except Stopped as error:
            attempt.end("stopped", str(error))
            raise
    return recorder.latest


def _trainer(experiment: Experiment, recorder: Recorder) -> Trainer:
    train = experiment.config["train"]
    # Its advice (workers, loggers, tips) is about things that are ours to decide.
    warnings.filterwarnings("ignore", module="lightning")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    return Trainer(
        accelerator="cpu" if not torch.cuda.is_available() else "gpu",
        devices=1 if train["devices"] == "auto" and not torch.cuda.is_available() else train["devices"],
        num_nodes=train["nodes"],
        strategy=train["strategy"],
        precision=PLUGINS[train["precision"]],  # type: ignore[arg-type]
        max_epochs=1,
        callbacks=[recorder],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        limit_val_batches=0,  # the recorder evaluates
        use_distributed_sampler=False,
    )


def _result(experiment: Experiment, found: Mapping[str, Any]) -> dict[str, Any]:
    cost = experiment.cost
    tokens = experiment.tokens(experiment.steps)
    return {
        **found,
        "step": experiment.steps,
        "tokens": tokens,
        "passes": experiment.batches.passes(experiment.steps),
        "N": {"non_embedding": cost.parameters_non_embedding, "total": cost.parameters},
        "C": {
            "exact": cost.flops_train_per_token * tokens,
            **{name: per_token * tokens for name, per_token in cost.approximations.items()},
        },
    }


def surroundings() -> dict[str, Any]:
    """Hardware and versions: two runs are comparable to the bit where these agree."""
    return {
        "processor": platform.processor() or platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "versions": {name: version(name) for name in ("scaling", "torch", "lightning", "numpy")},
    }
