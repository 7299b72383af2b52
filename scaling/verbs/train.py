"""Train a run or finetune one, and the LightningModule and data of a config."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from scaling.config.document import Config, print_remarks
from scaling.ledger import Ledger, run_id
from scaling.verbs.verb import PYTHON, RUNS, Flag, RunName, frame, verb, words

if TYPE_CHECKING:
    import pandas

    from scaling.data.module import DataModule
    from scaling.training.module import FamilyModule
    from scaling.verbs.model import Model

Overlays = Annotated[Sequence[str], Flag("overlay"), "a file that is merged over the config; repeats"]


@dataclass(frozen=True, repr=False)
class Run:
    """A run of a ledger, in the folder `path`. `already`: the run was finished before this call."""

    path: Path
    already: bool = False

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def id(self) -> str:
        return self.path.name

    @cached_property
    def _ledger(self) -> Ledger:
        return Ledger.open(self.path.parents[1])

    @cached_property
    def spec(self) -> Mapping[str, Any]:
        """The settings that determine the run."""
        return self._ledger.spec(self.id)

    @property
    def state(self) -> str:
        """`finished`, `running`, `diverged`, …"""
        return self._ledger.status(self.id).state

    @property
    def result(self) -> Mapping[str, Any] | None:
        """The content of result.json; None while there is none."""
        return self._ledger.result(self.id)

    @property
    def loss(self) -> float | None:
        """The final held-out loss in nats per token; None while there is none, or if the run diverged."""
        return None if self.result is None else self.result["loss"]

    @property
    def log(self) -> pandas.DataFrame:
        """The log of the run, one row for each entry: training losses (`kind` is `train`) and evaluations
        (`evaluate`).
        """
        return frame(self._ledger.history(self.id))

    def model(self, device: str | None = None) -> Model:
        """The model with the last weights that the run saved."""
        from scaling.verbs.model import load

        return load(self.path, device=device)

    def to_json(self) -> dict[str, Any]:
        """The document of `scaling train --json` (docs/json.md)."""
        return {**(self.result or {}), "already": self.already}

    def __str__(self) -> str:
        result = self.result
        if result is None:
            return f"run {self.id}: {self.state}"
        text = f"run {self.id}: {result['outcome']}" + (" before" if self.already else "")
        if result["loss"] is None:
            return f"{text}: {result['reason']}"
        text += f", held-out loss {result['loss']:.4f} {'nats' if 'score' in result else 'nats per token'}"
        text += f", {result['excess']:.4f} above the entropy" if "excess" in result else ""
        if "score" in result:
            main, *others = result["metrics"]
            low, high = result["intervals"][main]
            text += f", {main} {result['score']:.4f} (95% interval {low:.4f} to {high:.4f})"
            text += "".join(f", {other} {result['metrics'][other]:.4f}" for other in others)
            text += f", {result['invalid']:.1%} invalid outputs" if result.get("invalid") else ""
        text += f", best at step {result['best_step']} of {result['step']}" if "best_step" in result else ""
        return f"{text}, {result['tokens']:,} tokens" if "tokens" in result else f"{text}, {result['reason']}"

    __repr__ = __str__


@verb
def train(
    model: str | None = None,
    *overrides: str,
    overlays: Overlays = (),
    progress: PYTHON[bool] = True,
    callbacks: PYTHON[Any] = (),
    logger: PYTHON[Any] = (),
    **settings: Any,
) -> Run:
    """Train one run to its end, or resume it; a finished run is returned unchanged.

        scaling train decoder size=ladder/100k data=python train.tokens=20M
        scaling train gpt2 size=tiny optimizer.lr=1e-3 schedule.kind=WSD seed=1
        scaling train study=quickstart run=0123456789abcdef     one run of a planned study

    In Python overrides are words or keywords (`optimizer__lr=1e-3`), `progress=False` prints nothing, and Lightning's
    callbacks (which get `outputs["loss"]` of each update) and loggers (which get each entry of the log) can be given.
    """
    from scaling.sweeps.cells import resolved

    composed = resolved([*filter(None, (model, *overrides))], overlays)
    if any(word.startswith("study=") for word in overrides):
        from scaling.studies.scheduler import prepare

        prepare(overrides)
    return _trained(composed, progress, callbacks, logger)


@verb
def finetune(
    run: RunName,
    task: Annotated[str, "a name of `scaling tasks`, or a file with a section `data` of the kind Task"],
    *overrides: str,
    overlays: Overlays = (),
    runs: str | Path = RUNS,
    progress: PYTHON[bool] = True,
    callbacks: PYTHON[Any] = (),
    logger: PYTHON[Any] = (),
    **settings: Any,
) -> Run:
    """Finetune a run on a task: a new run of the ledger that starts from the weights of another run.

        scaling finetune 3fa9 cola
        scaling finetune 3fa9 sst2 data.files='{train: a.csv, validation: b.csv}' train.epochs=5
        scaling finetune my_model my_task.yaml optimizer.lr=2e-5 seed=1

    The command prints the values that it fills in (head, tokenizer, objective, epochs, schedule); key=value sets them.
    """
    from scaling.training.finetune import compose

    composed = compose(run, task, overrides, runs=runs, overlays=overlays)
    return _trained(composed, progress, callbacks, logger)


def _trained(composed: Config, progress: bool, callbacks: Any, logger: Any) -> Run:
    """The run that a resolved config describes, trained."""
    from scaling.training.experiment import assemble

    experiment = assemble(composed)  # what is wrong with it is reported before Lightning is imported
    if progress:
        print_remarks([experiment.config])

    from scaling.training import run

    callbacks, loggers = (
        list(one) if isinstance(one, Iterable) else [one] if one else [] for one in (callbacks, logger)
    )
    result = run.train(experiment, progress=progress, callbacks=callbacks, loggers=loggers)
    # Ranks other than the first have no result of their own.
    return Run(Path(composed["runs"]) / "store" / run_id(experiment.spec), result["already"])


def module(model: str | None = None, *overrides: str, overlays: Overlays = (), **settings: Any) -> FamilyModule:
    """The LightningModule of a config with initialised weights, for any `lightning.Trainer`.

        module, data = scaling.module("decoder", "size=tiny"), scaling.data_module("decoder", "size=tiny")
        lightning.Trainer(max_steps=module.steps, val_check_interval=100).fit(module, data)

    The result is an `EncoderModule`, `DecoderModule` or `EncoderDecoderModule`.
    """
    from scaling.sweeps.cells import experiment as assembled
    from scaling.training.module import MODULES

    experiment = assembled([*filter(None, [model]), *words(overrides, settings)], overlays)
    return MODULES[experiment.family](experiment)


def data_module(model: str | None = None, *overrides: str, overlays: Overlays = (), **settings: Any) -> DataModule:
    """The batches of a config, also those of its evaluation; the model determines their form."""
    from scaling.data.module import DataModule
    from scaling.sweeps.cells import experiment as assembled

    experiment = assembled([*filter(None, [model]), *words(overrides, settings)], overlays)
    return DataModule(experiment.batches, experiment.evaluation, experiment.steps)
