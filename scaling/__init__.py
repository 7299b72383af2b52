"""Scaling studies of transformers: the verbs of the command line as functions with typed results.

    import scaling

    run = scaling.train("decoder", "size=ladder/30k", data="python", tokens="5M")
    study = scaling.study("quickstart")
    fit = scaling.fit("points.csv", law="chinchilla")

`scaling.laws` is the mathematics of the fits. Nothing is imported before it is used; `docs/api.md` describes every
function and result.
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
    from scaling.verbs.doctor import *
    from scaling.verbs.evaluate import *
    from scaling.verbs.explain import *
    from scaling.verbs.fit import *
    from scaling.verbs.inside import *
    from scaling.verbs.inspect import *
    from scaling.verbs.mixture import *
    from scaling.verbs.model import *
    from scaling.verbs.plan import *
    from scaling.verbs.predict_run import *
    from scaling.verbs.runs import *
    from scaling.verbs.study import *
    from scaling.verbs.sweep import *
    from scaling.verbs.table import *
    from scaling.verbs.train import *
    from scaling.verbs.verb import Result as Result

    __version__: str

_MORE = {
    "train": ("Run", "data_module", "module"),
    "study": ("Study",),
    "plan": ("StudyPlan",),
    "table": ("Decisions", "Table"),
    "sweep": ("Sweep",),
    "evaluate": ("Evaluation", "Predictions"),
    "model": ("Model", "load"),
    "inside": ("Attention", "Landscape", "Probe"),
}


_HOMES = {
    "Cost": "model.cost",
    "CurveFit": "laws.curves",
    "Fit": "laws.examine",
    "Result": "verbs.verb",
    "ScalingError": "base.errors",
}
_HOMES |= {"extend": "config.schema", "__version__": "base.version"}
_HOMES |= dict.fromkeys(("DecoderModule", "EncoderDecoderModule", "EncoderModule"), "training.module")
for _module, _commands in COMMANDS.items():
    _HOMES |= dict.fromkeys((*map(function_name, _commands), *_MORE.get(_module, ())), f"verbs.{_module}")

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
