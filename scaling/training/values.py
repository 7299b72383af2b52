"""Values: checks of a config before anything is built of it, and the vocabulary that it has."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.base.errors import ScalingError, plural
from scaling.config import schema
from scaling.config.compose import Config, document, shipped
from scaling.config.strict_yaml import COMMAND_LINE, quantity
from scaling.data.source import Source, Vocabulary
from scaling.data.store import root
from scaling.training.ranks import rank_count

if TYPE_CHECKING:
    from scaling.training.transfer import Start

BUDGET = ("trainer.max_steps", "train.tokens", "train.epochs")
# Keys by which most runs of a study differ, and which cost nothing to assemble again.
VARIED = ("seed", *BUDGET, "log.name", "log.tags")


def check(config: Config) -> None:
    """Refuse what no run can have, before data or weights are read."""
    config.check()
    check_varied(config)
    if (start := config.tree.get("start")) is not None:
        sources = [key for key in ("run", "folder", "vectors") if start.get(key) is not None]
        what = "it names no weights" if not sources else f"it names weights by {' and by '.join(sources)}"
        config.refuse(len(sources) != 1, "start", what, "name one of start.run, start.folder and start.vectors")
        is_step = start.get("step") is not None and sources != ["run"]
        config.refuse(is_step, "start.step", "a file has one set of weights", "leave it out, or name start.run")
    is_missing = "tensorboard" in config["log.loggers"] and find_spec("tensorboard") is None
    fix = "pip install 'scaling[tensorboard]', or leave tensorboard out"
    config.refuse(is_missing, "log.loggers", "the package tensorboard is not installed", fix)
    threads, cores = config["train.threads"], os.cpu_count() or 1
    too_many = threads != "auto" and threads > cores
    config.refuse(too_many, "train.threads", f"there are {plural(cores, 'core')}", "take fewer, or auto")
    is_alone = config["trainer.strategy"] != "auto" and rank_count(config) == 1
    config.refuse(is_alone, "trainer.strategy", "there is one device", "take auto, or trainer.devices=2")


def check_varied(config: Config) -> None:
    """Refuse two lengths of a run, or none. A value that no one chose, that of defaults.yaml, there or in a config that
    was saved whole, is no second length.
    """
    lengths = {"trainer.max_steps": config.tree["trainer"]["max_steps"], "train.tokens": config.tree["train"]["tokens"]}
    if config.tree["train"]["epochs"] is None:
        fix = "set train.tokens, trainer.max_steps or train.epochs"
        config.refuse(not any(lengths.values()), "train.tokens", "a run needs a budget", fix)
        return
    for key, length in lengths.items():
        default = document(shipped() / "defaults.yaml")[key]
        default = quantity(default) if isinstance(default, str) else default
        chosen = length is not None and (config.origin.get(key) == COMMAND_LINE or length != default)
        config.refuse(chosen, "train.epochs", f"{key} sets the length of training too", f"set {key} to null")


def family_of(model: Mapping[str, Any]) -> Any:
    """The family of the model of a section, by name."""
    return schema.kinds("model")[model["kind"]].family  # type: ignore[attr-defined]


def objective_of(config: Config, source: Source) -> Any:
    """The objective of a config on its training data."""
    return config.build("objective", Vocabulary.of(source), config["size.length"], family_of(config["model"]))


# The vocabulary: the ids that data and objective need, unless the config gives another number


def with_vocabulary(config: Config, vocabulary: Vocabulary, start: Start | None = None) -> Config:
    """The config with the ids that the data and the objective need, where it gives none, or where a shipped size has
    fewer. A shipped size that has more keeps them, and so does the model of a start.
    """
    size = config["size"].get("vocabulary")
    if size is not None and size >= vocabulary.size:
        return config
    fix = f"set size.vocabulary to {vocabulary.size}, or to null to take what is needed"
    config.refuse(_is_given(config), "size.vocabulary", f"the data and the objective use {vocabulary.size} ids", fix)
    needed, trained = vocabulary.rounded(config["train.round_vocabulary"]).size, (start and start.vocabulary) or 0
    ids = trained if trained >= vocabulary.size else needed
    return replace(config, tree={**config.tree, "size": {**config["size"], "vocabulary": ids}})


def sized(config: Config, start: Start | None = None) -> Config:
    """The config with the vocabulary that training gives it, to count a model that is not trained.

    Where the data are not prepared, the number of a shipped size is taken.
    """
    if _is_given(config):
        return config
    try:
        objective = objective_of(config, config.build("data").open("train", root(config["runs"])))
    except ScalingError as error:
        if config["size"].get("vocabulary") is not None:
            return config
        raise config.place(error) from None
    return with_vocabulary(config, objective.vocabulary, start)


def _is_given(config: Config) -> bool:
    """Whether a person gave the vocabulary, on the command line or in a file; a shipped size gives none."""
    if config["size"].get("vocabulary") is None:
        return False
    file = config.origin.get("size.vocabulary", "").rpartition(":")[0]
    return not file or Path(file).resolve().parent != (shipped() / "size").resolve()
