"""Scaling studies of transformers: the verbs of the command line as functions with typed results.

    import scaling

    run = scaling.train("decoder", "size=ladder/30k", data="python", tokens="5M")
    study = scaling.study("quickstart")
    fit = scaling.fit("points.csv", law="chinchilla")

`scaling.published` holds published data sets, `scaling.law` the mathematics of the fits. Nothing is imported before it
is used; `docs/api.md` describes every function and result.
"""

from __future__ import annotations

TYPE_CHECKING = False  # the name alone is what type checkers know; typing costs a third of the import

if TYPE_CHECKING:
    from scaling import law as law
    from scaling import published as published
    from scaling.api.configs import diff as diff
    from scaling.api.configs import inspect as inspect
    from scaling.api.curves import Curves as Curves
    from scaling.api.curves import fit_curves as fit_curves
    from scaling.api.explain import Explanation as Explanation
    from scaling.api.explain import explain as explain
    from scaling.api.fit import fit as fit
    from scaling.api.fit_result import Fit as Fit
    from scaling.api.landscape import Landscape as Landscape
    from scaling.api.landscape import landscape as landscape
    from scaling.api.look import Attention as Attention
    from scaling.api.look import look as look
    from scaling.api.model import Model as Model
    from scaling.api.model import load as load
    from scaling.api.modules import data_module as data_module
    from scaling.api.modules import module as module
    from scaling.api.probe import Probe as Probe
    from scaling.api.probe import probe as probe
    from scaling.api.runs import Run as Run
    from scaling.api.runs import runs as runs
    from scaling.api.runs import train as train
    from scaling.api.scores import ClozeEvaluation as ClozeEvaluation
    from scaling.api.scores import CorpusEvaluation as CorpusEvaluation
    from scaling.api.scores import HarnessEvaluation as HarnessEvaluation
    from scaling.api.scores import OptionEvaluation as OptionEvaluation
    from scaling.api.scores import evaluate_cloze as evaluate_cloze
    from scaling.api.scores import evaluate_corpus as evaluate_corpus
    from scaling.api.scores import evaluate_harness as evaluate_harness
    from scaling.api.scores import evaluate_options as evaluate_options
    from scaling.api.studies import Study as Study
    from scaling.api.studies import StudyLook as StudyLook
    from scaling.api.studies import StudyPlan as StudyPlan
    from scaling.api.studies import plan as plan
    from scaling.api.studies import study as study
    from scaling.api.studies import watch as watch
    from scaling.api.sweeps import Sweep as Sweep
    from scaling.api.sweeps import sweep as sweep
    from scaling.api.tables import Decisions as Decisions
    from scaling.api.tables import Table as Table
    from scaling.api.tables import decide as decide
    from scaling.api.tables import table as table
    from scaling.api.tasks import Evaluation as Evaluation
    from scaling.api.tasks import Predictions as Predictions
    from scaling.api.tasks import evaluate as evaluate
    from scaling.api.tasks import finetune as finetune
    from scaling.api.tasks import predict as predict
    from scaling.api.tasks import tasks as tasks
    from scaling.cost import Cost as Cost
    from scaling.errors import ScalingError as ScalingError

    __version__: str

_MODULES = {
    "configs": ("diff", "inspect"),
    "curves": ("Curves", "fit_curves"),
    "explain": ("Explanation", "explain"),
    "fit": ("fit",),
    "fit_result": ("Fit",),
    "landscape": ("Landscape", "landscape"),
    "look": ("Attention", "look"),
    "model": ("Model", "load"),
    "modules": ("data_module", "module"),
    "probe": ("Probe", "probe"),
    "runs": ("Run", "runs", "train"),
    "scores": (
        "ClozeEvaluation",
        "CorpusEvaluation",
        "HarnessEvaluation",
        "OptionEvaluation",
        "evaluate_cloze",
        "evaluate_corpus",
        "evaluate_harness",
        "evaluate_options",
    ),
    "studies": ("Study", "StudyLook", "StudyPlan", "plan", "study", "watch"),
    "sweeps": ("Sweep", "sweep"),
    "tables": ("Decisions", "Table", "decide", "table"),
    "tasks": ("Evaluation", "Predictions", "evaluate", "finetune", "predict", "tasks"),
}
_HOMES = {name: f"scaling.api.{module}" for module, names in _MODULES.items() for name in names}
_HOMES |= {"Cost": "scaling.cost", "ScalingError": "scaling.errors"}
_ROOMS = ("law", "published")

__all__ = [*sorted((*_HOMES, *_ROOMS)), "__version__"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name == "__version__":
        from scaling.version import __version__

        return __version__
    if name not in __all__:
        raise AttributeError(f"module 'scaling' has no attribute {name!r}")
    import importlib

    if name in _ROOMS:
        return importlib.import_module(f"scaling.{name}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
