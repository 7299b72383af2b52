"""LightningModules and data modules of a config, for a `lightning.Trainer` of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from scaling.api.words import resolved

if TYPE_CHECKING:
    from scaling.data.module import DataModule
    from scaling.training.experiment import Experiment
    from scaling.training.module import FamilyModule


def module(
    model: str | None = None,
    *overrides: str,
    overlays: Sequence[str] = (),
    extend: str | None = None,
    **settings: Any,
) -> FamilyModule:
    """The LightningModule of a config, its weights drawn: `EncoderModule`, `DecoderModule` or `EncoderDecoderModule`.

    It goes into any `lightning.Trainer`, with callbacks, loggers and flags of one's own, next to `scaling.data_module`.

        module, data = scaling.module("decoder", "size=tiny"), scaling.data_module("decoder", "size=tiny")
        lightning.Trainer(max_steps=module.steps, val_check_interval=100).fit(module, data)
    """
    from scaling.training.module import MODULES

    experiment = _experiment(model, overrides, overlays, extend, settings)
    initial = experiment.initial_model()
    return MODULES[initial.family](experiment, initial)


def data_module(
    model: str | None = None,
    *overrides: str,
    overlays: Sequence[str] = (),
    extend: str | None = None,
    **settings: Any,
) -> DataModule:
    """The batches of a config, those of its evaluation included; the model sets their form.

    scaling.data_module("decoder", "size=tiny", data="python")
    """
    from scaling.data.module import DataModule

    experiment = _experiment(model, overrides, overlays, extend, settings)
    return DataModule(experiment.batches, experiment.validation, experiment.evaluations, stop=experiment.steps)


def _experiment(
    model: str | None,
    overrides: Sequence[str],
    overlays: Sequence[str],
    extend: str | None,
    settings: dict[str, Any],
) -> Experiment:
    from scaling.training.experiment import assemble
    from scaling.training.values import checked

    return assemble(checked(resolved(model, overrides, settings, overlays, extend)))
