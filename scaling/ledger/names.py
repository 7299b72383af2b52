"""Names of runs: the one of the config, or what the command line set, `Decoder 6,464 lr=0.001 seed=2`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scaling.ledger.document import text
from scaling.ledger.identity import UNCOUNTED
from scaling.strict_yaml import COMMAND_LINE

if TYPE_CHECKING:
    from scaling.config import Config

LONGEST = 120  # letters; W&B takes 128


def run_name(config: Config, parameters: int) -> str:
    """`log.name`, or the family, the number of parameters, and what the command line set."""
    if config["log.name"]:
        return config["log.name"]
    given = {
        key: config[key]
        for key, origin in config.origin.items()
        if origin == COMMAND_LINE and not _is_uncounted(key) and not isinstance(config[key], dict)
    }
    head = f"{config['model.kind']} {parameters:,}"
    # The number of parameters stands for the size, so where not all has room its keys go first.
    ordered = dict(sorted(given.items(), key=lambda item: item[0].partition(".")[0] not in ("size", "data")))
    words = assignments(ordered)
    while len(" ".join([head, *words])) > LONGEST - 2:
        words = words[1:]
    return " ".join([head, *(["…"] if len(words) < len(given) else []), *words])


def assignments(values: Mapping[str, Any]) -> list[str]:
    """`key=value` words, each key by its last part where no other ends so; a table's row by its name alone."""
    last = [key.rpartition(".")[2] for key in values]
    short = {key: end if last.count(end) == 1 else key for key, end in zip(values, last, strict=True)}
    return [spelled(value) if key == "row" else f"{short[key]}={spelled(value)}" for key, value in values.items()]


def spelled(value: Any) -> str:
    """A value in a name: text as it is, whole numbers as such, others to four digits."""
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() and abs(value) < 1e15 else f"{value:.4g}"
    return value if isinstance(value, str) else text(value)


def _is_uncounted(key: str) -> bool:
    return key in UNCOUNTED or key.partition(".")[0] in (*UNCOUNTED, "evaluate")
