"""A model's vocabulary: the ids that its data and its objective need, unless the config gives another number."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from scaling import schema
from scaling.config import Config, shipped
from scaling.data.source import Vocabulary
from scaling.data.store import root
from scaling.errors import ScalingError


def with_vocabulary(config: Config, vocabulary: Vocabulary, start: int | None = None) -> Config:
    """The config with the ids that the data and the objective need, where it gives none, or where a shipped size has
    fewer. A shipped size that has more keeps them, and a model that has `start` ids where it begins keeps those.
    """
    size = config["size"].get("vocabulary")
    if size is not None and size >= vocabulary.size:
        return config
    if start is not None and not _is_given(config) and start >= vocabulary.size:
        return replace(config, tree={**config.tree, "size": {**config["size"], "vocabulary": start}})
    if _is_given(config):
        raise config.error(
            "size.vocabulary",
            f"the data and the objective use {vocabulary.size} ids",
            f"set size.vocabulary to {vocabulary.size}, or to null to take what is needed",
        )
    needed = vocabulary.rounded(config["train.round_vocabulary"])
    return replace(config, tree={**config.tree, "size": {**config["size"], "vocabulary": needed.size}})


def sized(config: Config, start: int | None = None) -> Config:
    """The config with the vocabulary that training gives it, to count a model that is not trained.

    Where the data are not prepared, the number of a shipped size is taken.
    """
    if _is_given(config):
        return config
    try:
        source = config.build("data").open("train", root(config["runs"]))
        family = schema.kinds("model")[config["model.kind"]].family  # type: ignore[attr-defined]
        objective = config.build("objective", Vocabulary.of(source), config["size.length"], family)
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
