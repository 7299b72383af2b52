"""Values: what the numbers of a config tell by themselves to be wrong, before torch is imported, which takes longer."""

from __future__ import annotations

from collections.abc import Mapping

from scaling.config import Config
from scaling.data.plan import BatchSize
from scaling.errors import ScalingError
from scaling.training import loggers
from scaling.training.schedule import check as check_schedule

BUDGET = ("train.steps", "train.tokens")


def checked(config: Config) -> Config:
    """This config, or the first mistake in it that can be told without torch."""
    config.check()
    check(config)
    _check_pieces(config)
    return config


def check(config: Config) -> None:
    """Refuse what no run can have."""
    loggers.check(config)
    check_varied(config)


def check_varied(config: Config) -> None:
    """The same of what most runs of a study differ by."""
    train = config.tree["train"]
    if train["steps"] is None and train["tokens"] is None:
        raise config.error("train.tokens", "a run needs a budget", "set train.tokens or train.steps")


def _check_pieces(config: Config) -> None:
    """Refuse what the pieces of training that need no torch to be made refuse, and a warmup beyond the steps told."""
    config.build("optimizer")
    schedule, steps = config.build("schedule"), config["train.steps"]
    try:
        batch_size(config)
        if steps is not None:
            check_schedule(schedule, steps)
    except ScalingError as error:
        raise config.place(error) from None


def batch_size(config: Config) -> BatchSize:
    """`train.batch`; the steps of a schedule are keys, and a key of a document is text."""
    told = config["train.batch"]
    if isinstance(told, Mapping):
        return BatchSize.of({int(key) if key.isdecimal() else key: value for key, value in told.items()})
    return BatchSize.of(told)
