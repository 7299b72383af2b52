"""Scaling studies of transformers: the verbs of the command line as functions with typed results.

    import scaling

    run = scaling.train("decoder", "size=ladder/30k", data="python", tokens="5M")
    study = scaling.study("quickstart")
    fit = scaling.fit("points.csv", law="chinchilla")

`scaling.laws` is the mathematics of the fits. Nothing is imported before it is used. See `docs/api.md`.
"""
# ruff: noqa: F403 (the stars are for type checkers alone; other programs import a name from the module that has it)

from __future__ import annotations

from scaling.verbs import COMMANDS, function_name

TYPE_CHECKING = False  # the name alone is what type checkers know; typing costs a third of the import

if TYPE_CHECKING:
    from scaling import laws as laws
    from scaling.base.errors import ScalingError as ScalingError
    from scaling.config.schema import extend as extend
    from scaling.laws.curves import CurveFit as CurveFit
    from scaling.laws.examine import Fit as Fit
    from scaling.model.cost import Cost as Cost
    from scaling.training.module import DecoderModule as DecoderModule
    from scaling.training.module import EncoderDecoderModule as EncoderDecoderModule
    from scaling.training.module import EncoderModule as EncoderModule
    from scaling.verbs.compare import *
    from scaling.verbs.data import *
    from scaling.verbs.evaluate import *
    from scaling.verbs.explain import *
    from scaling.verbs.fit import *
    from scaling.verbs.inside import *
    from scaling.verbs.mixture import *
    from scaling.verbs.model import *
    from scaling.verbs.predict_run import *
    from scaling.verbs.runs import *
    from scaling.verbs.study import *
    from scaling.verbs.sweep import *
    from scaling.verbs.table import *
    from scaling.verbs.train import *
    from scaling.verbs.verb import Result as Result

    __version__: str

# The modules of what is not a command, by name; those of commands are in `COMMANDS`.
_MORE = {
    "base": ("__version__",),
    "base.errors": ("ScalingError",),
    "config.schema": ("extend",),
    "laws.curves": ("CurveFit",),
    "laws.examine": ("Fit",),
    "model.cost": ("Cost",),
    "training.module": ("DecoderModule", "EncoderDecoderModule", "EncoderModule"),
    "verbs.evaluate": ("Evaluation", "Predictions"),
    "verbs.inside": ("Attention", "Landscape", "Probe"),
    "verbs.model": ("Model", "load"),
    "verbs.study": ("Study", "StudyPlan"),
    "verbs.sweep": ("Sweep",),
    "verbs.table": ("Decisions", "Table"),
    "verbs.train": ("Run", "data_module", "module"),
    "verbs.verb": ("Result",),
}
_HOMES = {name: module for module, names in _MORE.items() for name in names}
_HOMES |= {function_name(command): f"verbs.{module}" for module, group in COMMANDS.items() for command in group}

__all__ = sorted([*_HOMES, "laws"])  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'scaling' has no attribute {name!r}")
    import importlib

    if name not in _HOMES:
        return importlib.import_module(f"scaling.{name}")
    value = globals()[name] = getattr(importlib.import_module(f"scaling.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
