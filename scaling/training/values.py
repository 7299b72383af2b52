"""Values: checks of a config before anything is built of it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from scaling.config import Config, document, shipped
from scaling.data.plan import BatchSize
from scaling.errors import ScalingError
from scaling.strict_yaml import COMMAND_LINE, quantity
from scaling.training.schedule import check as check_schedule

BUDGET = ("trainer.max_steps", "train.tokens", "train.epochs")
# Keys by which most runs of a study differ, and which cost nothing to assemble again.
VARIED = ("seed", *BUDGET, "log.name", "log.tags")


def checked(config: Config) -> Config:
    """This config, or the first mistake in it that can be detected without its data and its model."""
    config.check()
    check(config)
    _check_pieces(config)
    return config


def check(config: Config) -> None:
    """Refuse what no run can have."""
    _check_loggers(config)
    check_varied(config)
    _check_start(config)


def _check_loggers(config: Config) -> None:
    """Refuse a logger whose package, which an extra of the same name installs, is missing."""
    for name in config["log.loggers"]:
        if name != "csv" and find_spec(name) is None:
            fix = f"pip install 'scaling[{name}]', or leave {name} out"
            raise config.error("log.loggers", f"the package {name} is not installed", fix)


def check_varied(config: Config) -> None:
    """The same of what most runs of a study differ by."""
    train = config.tree["train"]
    if train["epochs"] is not None:
        for key in ("trainer.max_steps", "train.tokens"):
            if config[key] is not None and not _is_default(config, key):
                raise config.error("train.epochs", f"{key} sets the length of training too", f"set {key} to null")
    elif config.tree["trainer"]["max_steps"] is None and train["tokens"] is None:
        raise config.error(
            "train.tokens", "a run needs a budget", "set train.tokens, trainer.max_steps or train.epochs"
        )


def _is_default(config: Config, key: str) -> bool:
    """Whether no one chose the value: it is that of defaults.yaml, there or in a config that was saved whole."""
    default = document(shipped() / "defaults.yaml")[key]
    default = quantity(default) if isinstance(default, str) else default
    return config.origin.get(key) != COMMAND_LINE and config[key] == default


def _check_start(config: Config) -> None:
    """Refuse a section that does not name one start."""
    section = config.tree.get("start")
    if section is None:
        return
    given = [key for key in ("run", "folder", "study", "vectors") if section.get(key) is not None]
    if len(given) != 1:
        what = "it names no weights" if not given else f"it names weights by {' and by '.join(given)}"
        raise config.error("start", what, "name one of start.run, start.folder, start.study and start.vectors")
    if section.get("row") is not None and given != ["study"]:
        raise config.error("start.row", "only a study has rows", "name start.study")
    if section.get("step") is not None and given in (["folder"], ["vectors"]):
        raise config.error("start.step", "a file has one set of weights", "leave it out, or name start.run")


def _check_pieces(config: Config) -> None:
    """Refuse what the optimizer and the schedule refuse, and a warmup longer than the configured steps."""
    config.build("optimizer")
    schedule, steps = config.build("schedule"), config["trainer.max_steps"]
    try:
        batch_size(config)
        if steps is not None:
            check_schedule(schedule, steps)
    except ScalingError as error:
        raise config.place(error) from None


def batch_size(config: Config) -> BatchSize:
    """`train.batch`; the steps of a schedule are keys, and a key of a document is text."""
    setting = config["train.batch"]
    if isinstance(setting, Mapping):
        return BatchSize.of({int(key) if key.isdecimal() else key: value for key, value in setting.items()})
    return BatchSize.of(setting)
