"""Scaling studies of transformers: the verbs of the command line as functions with typed results.

    import scaling

    run = scaling.train("decoder", "size=ladder/30k", data="python", tokens="5M")
    study = scaling.study("quickstart")
    fit = scaling.fit("points.csv", law="chinchilla")

`scaling.laws` is the mathematics of the fits. Nothing is imported before it is used;
`docs/api.md` describes every function and result.
"""

from __future__ import annotations

TYPE_CHECKING = False  # the name alone is what type checkers know; typing costs a third of the import

if TYPE_CHECKING:
    from scaling import laws as laws
    from scaling.cost import Cost as Cost
    from scaling.errors import ScalingError as ScalingError
    from scaling.laws.curve_fit import CurveFit as CurveFit
    from scaling.schema import extend as extend
    from scaling.verbs.data import PreparedData as PreparedData
    from scaling.verbs.data import data_list as data_list
    from scaling.verbs.data import data_prepare as data_prepare
    from scaling.verbs.data import data_show as data_show
    from scaling.verbs.doctor import doctor as doctor
    from scaling.verbs.evaluate import ClozeEvaluation as ClozeEvaluation
    from scaling.verbs.evaluate import CorpusEvaluation as CorpusEvaluation
    from scaling.verbs.evaluate import HarnessEvaluation as HarnessEvaluation
    from scaling.verbs.evaluate import OptionEvaluation as OptionEvaluation
    from scaling.verbs.evaluate import evaluate_cloze as evaluate_cloze
    from scaling.verbs.evaluate import evaluate_corpus as evaluate_corpus
    from scaling.verbs.evaluate import evaluate_harness as evaluate_harness
    from scaling.verbs.evaluate import evaluate_options as evaluate_options
    from scaling.verbs.explain import Explanation as Explanation
    from scaling.verbs.explain import explain as explain
    from scaling.verbs.fit import Fit as Fit
    from scaling.verbs.fit import fit as fit
    from scaling.verbs.fit_curves import fit_curves as fit_curves
    from scaling.verbs.inside import Attention as Attention
    from scaling.verbs.inside import Landscape as Landscape
    from scaling.verbs.inside import Probe as Probe
    from scaling.verbs.inside import landscape as landscape
    from scaling.verbs.inside import look as look
    from scaling.verbs.inside import probe as probe
    from scaling.verbs.inspect import inspect as inspect
    from scaling.verbs.model import Model as Model
    from scaling.verbs.model import generate as generate
    from scaling.verbs.model import load as load
    from scaling.verbs.plan import StudyPlan as StudyPlan
    from scaling.verbs.plan import plan as plan
    from scaling.verbs.predict_run import predict_run as predict_run
    from scaling.verbs.predict_run import predictions as predictions
    from scaling.verbs.runs import diff as diff
    from scaling.verbs.runs import gc as gc
    from scaling.verbs.runs import runs as runs
    from scaling.verbs.runs import show as show
    from scaling.verbs.study import Study as Study
    from scaling.verbs.study import StudyLook as StudyLook
    from scaling.verbs.study import report as report
    from scaling.verbs.study import study as study
    from scaling.verbs.study import watch as watch
    from scaling.verbs.study import work as work
    from scaling.verbs.sweep import Sweep as Sweep
    from scaling.verbs.sweep import agent as agent
    from scaling.verbs.sweep import pull as pull
    from scaling.verbs.sweep import sweep as sweep
    from scaling.verbs.table import Decisions as Decisions
    from scaling.verbs.table import Table as Table
    from scaling.verbs.table import decide as decide
    from scaling.verbs.table import table as table
    from scaling.verbs.tasks import Evaluation as Evaluation
    from scaling.verbs.tasks import Predictions as Predictions
    from scaling.verbs.tasks import evaluate as evaluate
    from scaling.verbs.tasks import predict as predict
    from scaling.verbs.tasks import tasks as tasks
    from scaling.verbs.train import Run as Run
    from scaling.verbs.train import data_module as data_module
    from scaling.verbs.train import finetune as finetune
    from scaling.verbs.train import module as module
    from scaling.verbs.train import train as train
    from scaling.verbs.weights import export as export
    from scaling.verbs.weights import import_ as import_

    __version__: str

_MODULES = {
    "data": ("PreparedData", "data_list", "data_prepare", "data_show"),
    "doctor": ("doctor",),
    "evaluate": (
        *("ClozeEvaluation", "CorpusEvaluation", "HarnessEvaluation", "OptionEvaluation"),
        *("evaluate_cloze", "evaluate_corpus", "evaluate_harness", "evaluate_options"),
    ),
    "explain": ("Explanation", "explain"),
    "fit": ("Fit", "fit"),
    "fit_curves": ("fit_curves",),
    "inside": ("Attention", "Landscape", "Probe", "landscape", "look", "probe"),
    "inspect": ("inspect",),
    "model": ("Model", "generate", "load"),
    "plan": ("StudyPlan", "plan"),
    "predict_run": ("predict_run", "predictions"),
    "runs": ("diff", "gc", "runs", "show"),
    "study": ("Study", "StudyLook", "report", "study", "watch", "work"),
    "sweep": ("Sweep", "agent", "pull", "sweep"),
    "table": ("Decisions", "Table", "decide", "table"),
    "tasks": ("Evaluation", "Predictions", "evaluate", "predict", "tasks"),
    "train": ("Run", "data_module", "finetune", "module", "train"),
    "weights": ("export", "import_"),
}
_HOMES = {name: f"scaling.verbs.{module}" for module, names in _MODULES.items() for name in names}
_HOMES |= {"Cost": "scaling.cost", "CurveFit": "scaling.laws.curve_fit"}
_HOMES |= {"ScalingError": "scaling.errors", "extend": "scaling.schema"}
_ROOMS = ("laws",)

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
