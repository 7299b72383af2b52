"""Values: what the numbers of a config tell by themselves to be wrong, before torch is imported, which takes longer."""

from __future__ import annotations

from collections.abc import Mapping

from scaling.config import Config
from scaling.data.plan import BatchSize
from scaling.errors import ScalingError, nearest
from scaling.train import loggers
from scaling.train.schedule import check as check_schedule

CHOICES = {
    "train.precision": ("float32", "bf16_autocast", "bf16"),
    "train.strategy": ("auto", "ddp", "fsdp"),
    "log.wandb": ("auto", "online", "offline", "disabled"),
}
ABOVE_ZERO = ("train.clip", "train.micro_batch", "train.checkpoint_every", "train.round_vocabulary", "evaluate.windows")
FROM_ONE = ("log.every", "evaluate.points")
BUDGET = ("train.steps", "train.tokens")
SHARES = (".dropout", ".smoothing")


def checked(config: Config) -> Config:
    """This config, or the first mistake in it that can be told without torch."""
    config.check()
    check(config)
    _check_pieces(config)
    return config


def check(config: Config) -> None:
    """Refuse what no run can have."""
    loggers.check(config)
    for key, choices in CHOICES.items():
        if config[key] not in choices:
            raise config.error(key, "there is no such choice", nearest(config[key], choices))
    for key in ABOVE_ZERO:
        _above_zero(config, key)
    for key in config.origin:
        if key.endswith(SHARES) and isinstance(rate := config[key], int | float) and not 0 <= rate < 1:
            raise config.error(key, "expected a share from 0 up to 1")
    for key in FROM_ONE:
        if config[key] < 1:
            raise config.error(key, "expected a number from 1")
    check_varied(config)


def check_varied(config: Config) -> None:
    """The same of what most runs of a study differ by."""
    tree = config.tree
    for key in BUDGET:
        _above_zero(config, key)
    if tree["seed"] < 0:
        raise config.error("seed", "expected a number from 0")
    if tree["train"]["steps"] is None and tree["train"]["tokens"] is None:
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


def _above_zero(config: Config, key: str) -> None:
    value = config[key]
    if value is not None and not value > 0:
        raise config.error(key, "expected a number above 0")
