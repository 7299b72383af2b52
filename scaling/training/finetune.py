"""Finetuning as an ordinary config: the model of a run with the head of a task, the weights that it starts from, the
task's data and objective, and a short schedule. What is filled in here can be set otherwise on the command line.

torch is not needed: mistakes in the request are reported first.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from scaling.base.errors import nearest, refuse, under
from scaling.config import schema
from scaling.config.compose import load
from scaling.config.document import Config, of_values
from scaling.config.files import names
from scaling.config.strict_yaml import flow
from scaling.data.task.task import is_file, task_of_file
from scaling.interop.pretrained import Pretrained, pretrained

DROPOUT = 0.1  # of a new head (Devlin et al. 2018, section A.2)
EPOCHS, BATCH = 3, 32  # (Devlin et al. 2018, section A.3)
LESS = 0.1  # of the learning rate of the run that is finetuned
RELATIVE = 0.03  # of Adafactor at most, whose steps are relative to a parameter's scale (docs/results/transfer)
RATE = 5e-5  # where that is not known (Devlin et al. 2018, section A.3)

_OWN = ("head", "sentence", "boundary", "language", "mix")  # heads of a model, and what mixes layers for one


def compose(
    source: Pretrained | str | os.PathLike[str],
    task: str,
    words: Sequence[str] = (),
    *,
    runs: str | Path = "runs",
    overlays: Sequence[str | Path] = (),
) -> Config:
    """The config that finetunes a run, or what a word names, on a task; its remarks have what was filled in, as words
    of the command line. `words` are overrides, which come last.
    """
    if not isinstance(source, Pretrained):
        source = pretrained(source, runs)
    line, words = task_of_file(task, words) if is_file(task) else (named(task), words)
    model, size = (source.sections[key] for key in ("model", "size"))
    base = {
        "model": model,
        "size": {key: value for key, value in size.items() if key != "vocabulary"},  # as the start and data need
        "data": line,
        "objective": {"kind": "Answer"},
        **_training(source, words),
        "runs": str(runs),
    }
    requested = _loaded(base, words, overlays).tree
    answers = goal(requested["data"], task)
    head = {} if requested["objective"].get("form") == "text" else _head(source, answers)
    filled = {
        **base,
        **(_tokenized(source) if requested["data"]["kind"] == "Task" else {}),  # others are made of token ids
        "model": {**model, **head},
        "start": _start(source, head),
    }
    config = _loaded(filled, words, overlays)
    set_keys = {"model", "size", "runs", *(word.partition("=")[0] for word in words)}
    shown = {**filled, **{f"model.{key}": value for key, value in head.items()}}
    remarks = [f"filled in {key}={flow(value)}" for key, value in shown.items() if key not in set_keys]
    return replace(config, remarks=(*config.remarks, *remarks))


def name_of(task: str) -> str:
    """A task in the names of columns, runs and figures: a shipped one's own, or that of its file."""
    return Path(task).stem


def named(task: str, key: str = "TASK", others: Sequence[str] = ()) -> str:
    """A shipped task by its name, or another file. The error of an unknown one proposes tasks and `others`."""
    if task in (task_names := names("task")):
        return f"task/{task}"
    is_file = Path(task).suffix or os.path.exists(Path(os.path.expanduser(task)))
    is_unknown = task not in names("data") and not is_file
    refuse(is_unknown, "there is no such task", nearest(task, [*task_names, *others]), key=key, value=task)
    return task


def goal(data: Mapping[str, Any], task: str | None = None) -> Any:
    """The goal of the task of a `data` line: its answer, labels, order and metric."""
    fix = "name one of `scaling tasks`, or a file with data of the kind Task"
    refuse(not _is_task(data), "it is not a task", fix, key="TASK", value=task)
    line = {key: value for key, value in data.items() if key != "fingerprint"}
    if data["kind"] == "Task":
        line = {"tokenizer": {"kind": "Byte"}, **line}  # where it has none yet, that of a run comes later
    with under("data"):
        built = schema.build("data", line)
    return built.goal


def check_task(task: str) -> None:
    """Refuse what is not a task, or a file that cannot be read, before anything is trained for it."""
    goal(load("decoder", [f"data={named(task)}"]).tree["data"], task)


def _loaded(filled: Mapping[str, Any], words: Sequence[str], overlays: Sequence[str | Path] = ()) -> Config:
    return load(None, words, overlays=overlays, filled=of_values("scaling finetune", filled))


def _tokenized(source: Pretrained) -> dict[str, Any]:
    return {} if source.tokenizer is None else {"data.tokenizer": {"kind": "File", "path": str(source.tokenizer)}}


def _start(source: Pretrained, head: Mapping[str, Any]) -> dict[str, Any]:
    """The weights, with a new head in the place of the model's own; of tables, the rows of new tokens are drawn."""
    heads = [f"{name}.*" for name in _OWN] if head else []
    towers = [tower for tower in ("encoder", "decoder") if source.family in (tower, "encoder_decoder")]
    tables = [f"{tower}.embedding.table" for tower in towers] + ([] if head else ["head.weight", "head.bias"])
    return {**source.start, "new": [*heads, *tables], "unused": heads}


def _head(source: Pretrained, goal: Any) -> dict[str, Any]:
    """The changes of the model for a head that predicts the task's answers; a model that writes them keeps its own
    head.
    """
    if source.family == "encoder_decoder" or goal.head is None:
        return {}
    keys = {
        "classes": len(goal.labels),
        **({"activation": "Tanh"} if source.family == "encoder" else {}),
        "dropout": DROPOUT,
        # GPT reads a pair without an order in both orders.
        **({"added": True} if goal.order == "either" and source.family == "decoder" else {}),
    }
    head = {"kind": goal.head, **{key: value for key, value in keys.items() if key in goal.head_keys}}
    absent = {name: None for name in _OWN[1:] if source.sections["model"].get(name) is not None}
    return {"head": head, **absent, "tie": []}


def _training(source: Pretrained, words: Sequence[str]) -> dict[str, Any]:
    optimizer, parametrization = (source.sections.get(key) or {} for key in ("optimizer", "parametrization"))
    rate = float(f"{optimizer['lr'] * LESS:.3g}") if "lr" in optimizer else RATE
    line = {"kind": "AdamW", "lr": rate}
    if optimizer.get("kind") == "Adafactor" and not any(word.startswith("tuning") for word in words):
        line = {"kind": "Adafactor", "lr": min(optimizer.get("lr", RELATIVE), RELATIVE)}
    has_budget = any(word.partition("=")[0] in ("train.tokens", "trainer.max_steps") for word in words)
    return {
        "optimizer": line,
        "schedule": {"kind": "Linear"},
        **({"parametrization": parametrization} if parametrization else {}),
        **({} if has_budget else {"train.epochs": EPOCHS, "train.tokens": None}),
        "train.batch": BATCH,
        "evaluate.points": EPOCHS,
        "evaluate.windows": None,
    }


def finetuned(
    run: str | os.PathLike[str], task: str | None, words: Sequence[str] = (), *, runs: str | Path = "runs"
) -> tuple[Pretrained, Any]:
    """A finetuned run, and the data of its own task, or of another that has the same answers and labels."""
    source = pretrained(run, runs)
    own_data = source.data
    fix = "name a run of `scaling finetune`, or score it by `scaling evaluate-options` or `evaluate-corpus`"
    refuse(not _is_task(own_data), "it was not trained on a task", fix, key="RUN", value=os.fspath(run))
    filled: dict[str, Any] = {"data": own_data if task is None else named(task)}
    if task is not None and "tokenizer" in own_data:
        filled["data.tokenizer"] = own_data["tokenizer"]
    data = _line(source, filled, words, runs)
    ours, theirs = goal(own_data), goal(data, task)
    for key, of in {"answers": lambda one: one.answer, "labels": lambda one: list(one.labels)}.items():
        what = f"the run was trained for the {key} {of(ours)}, and the task has {of(theirs)}"
        refuse(of(ours) != of(theirs), what, "finetune a run on this task", key="TASK", value=task)
    return source, data


def unfinetuned(source: Pretrained, task: str, words: Sequence[str] = (), *, runs: str | Path = "runs") -> Any:
    """The data of a task of texts, with the tokenizer of a run that was not trained on it."""
    _ = source.codec
    data = _line(source, {"data": named(task), **_tokenized(source)}, words, runs)
    fix = "name one of `scaling tasks` that is made of texts, or its file"
    refuse(data["kind"] != "Task", "it is not a task of texts", fix, key="TASK", value=task)
    return data


def corpus(source: Pretrained, name: str | None, words: Sequence[str] = (), *, runs: str | Path = "runs") -> Any:
    """The data of a corpus that is named, or of the one that a run was trained on."""
    what = "the training data of the run are unknown"
    refuse(name is None and not source.data, what, "name prepared data", key="CORPUS")
    return _line(source, {"data": name or source.data}, words, runs)


def _line(source: Pretrained, filled: Mapping[str, Any], words: Sequence[str], runs: str | Path) -> Any:
    """A line `data` beside the model of a run."""
    model = {key: source.sections[key] for key in ("model", "size")}
    return _loaded({**model, "runs": str(runs), **filled}, words).tree["data"]


def _is_task(data: Mapping[str, Any]) -> bool:
    kind = schema.kinds("data").get(data.get("kind", ""), object)
    return hasattr(kind, "goal") or "answer" in schema.keys(kind)
