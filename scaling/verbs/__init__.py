"""The verbs: a file for each topic, with its functions, their results, and their printed texts."""

from __future__ import annotations

TYPE_CHECKING = False  # the name alone is what type checkers know; typing costs a third of `import scaling`

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

COMMANDS = {
    "train": ("train", "finetune"),
    "study": ("study", "submit", "report", "watch", "plan"),
    "predict_run": ("predict-run", "predictions"),
    "table": ("table", "decide"),
    "sweep": ("sweep", "pull"),
    "fit": ("fit", "fit-curves"),
    "compare": ("compare",),
    "mixture": ("mixture",),
    "evaluate": ("evaluate", "evaluate-options", "evaluate-corpus", "evaluate-harness", "predict", "tasks"),
    "explain": ("inspect", "explain"),
    "data": ("data list", "data prepare", "data show"),
    "runs": ("runs", "show", "diff", "gc", "doctor"),
    "model": ("generate", "export", "import"),
    "inside": ("look", "probe", "landscape"),
}
"""The commands by the module of `scaling/verbs` that has their functions, in the order of `scaling --help`."""


def function_name(command: str) -> str:
    """The name of a command's function; Python keeps `import` for itself."""
    return "import_" if command == "import" else command.replace(" ", "_").replace("-", "_")


def function_of(command: str) -> Callable[..., Any]:
    """The function of a command."""
    import importlib

    module = next(module for module, group in COMMANDS.items() if command in group)
    return getattr(importlib.import_module(f"scaling.verbs.{module}"), function_name(command))
