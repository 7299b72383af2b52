"""Run name: what loggers show a run under where `log.name` is null."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaling.ledger.identity import UNCOUNTED
from scaling.ledger.listing import assignments
from scaling.strict_yaml import COMMAND_LINE

if TYPE_CHECKING:
    from scaling.training.experiment import Experiment

LONGEST = 120  # letters; W&B takes 128


def run_name(experiment: Experiment) -> str:
    """`log.name`, or the family, the number of parameters, and what the command line set."""
    config = experiment.config
    if config["log.name"]:
        return config["log.name"]
    given = {
        key: config[key]
        for key, origin in config.origin.items()
        if origin == COMMAND_LINE and not _is_uncounted(key) and not isinstance(config[key], dict)
    }
    head = f"{config['model.kind']} {experiment.cost.parameters_non_embedding:,}"
    # The number of parameters stands for the size, so where not all has room its keys go first.
    ordered = dict(sorted(given.items(), key=lambda item: item[0].partition(".")[0] not in ("size", "data")))
    words = assignments(ordered)
    while len(" ".join([head, *words])) > LONGEST - 2:
        words = words[1:]
    return " ".join([head, *(["…"] if len(words) < len(given) else []), *words])


def _is_uncounted(key: str) -> bool:
    return key in UNCOUNTED or key.partition(".")[0] in (*UNCOUNTED, "evaluate")
