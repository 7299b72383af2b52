"""Identity: two specs that describe the same experiment get the same run, and two that differ never do.

    run_id = first 16 hexadecimal digits of SHA-256(canonical JSON of what counts)

Everything in a spec counts unless it is listed here: a key that someone forgets to list costs a run done twice, while
one wrongly left out would mix two experiments. Where the data have a fingerprint, it alone represents them: equal
fingerprints are equal rows, wherever the files lie. Numbers are compared by value, so 20M, 2e7 and 20000000 are one
budget. A trunk's spec simply has no horizon; its length is passed to the worker that trains it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scaling.base.errors import ScalingError
from scaling.config.strict_yaml import COMMAND_LINE
from scaling.ledger.document import text

if TYPE_CHECKING:
    from scaling.config.document import Config

RUN_ID = re.compile(r"[0-9a-f]{16}")

# Where and how a run is executed, watched and named, but not what it computes.
UNCOUNTED = frozenset(
    {
        "name",
        "runs",
        "log",
        "evaluate.points",
        "evaluate.spacing",
        "objective.teacher",  # where its weights are: their hash counts, as that of the start's
        "start.folder",
        "start.run",
        "start.vectors",
        "start.step",
        "train.checkpoint_every",
        "train.checkpointing",
        "train.compile",
        "trainer.devices",
        "train.keep",
        "train.micro_batch",
        "trainer.strategy",
        "train.threads",
    }
)

LONGEST = 120  # letters of a name; W&B takes 128


def run_id(spec: Mapping[str, Any]) -> str:
    """The name of the run that `spec` describes."""
    return hashlib.sha256(identity(spec).encode()).hexdigest()[:16]


def identity(spec: Mapping[str, Any]) -> str:
    """The part of a spec that counts, as canonical JSON: sorted keys, no spaces, one spelling for each number."""
    try:
        return json.dumps(_counted(spec), sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, AttributeError, RecursionError):
        what = "a spec holds text, finite numbers, and lists and mappings of them"
        raise ScalingError(what, key="spec") from None


def _counted(value: Any, place: str = "") -> Any:
    """The part of a value that counts, in one spelling; `place` is its dotted key with a dot behind it."""
    if isinstance(value, dict):
        if place == "data." and "fingerprint" in value:
            value = {"fingerprint": value["fingerprint"]}
        return {key: _counted(item, f"{place}{key}.") for key, item in value.items() if place + key not in UNCOUNTED}
    if isinstance(value, list | tuple):
        return [_counted(item, f"{place}{index}.") for index, item in enumerate(value)]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


# Names for people


def run_name(config: Config, parameters: int) -> str:
    """`log.name`, or the family, the number of parameters, and what the command line set."""
    if named := config.tree["log"]["name"]:
        return named
    uncounted = {*UNCOUNTED, "evaluate"}
    fields = {
        key: config[key]
        for key, origin in config.origin.items()
        if origin == COMMAND_LINE and not uncounted & {key, key.partition(".")[0]} and not isinstance(config[key], dict)
    }
    head = f"{config['model.kind']} {parameters:,}"
    # The number of parameters stands for the size, so where not all has room its keys go first.
    ordered = dict(sorted(fields.items(), key=lambda item: item[0].partition(".")[0] not in ("size", "data")))
    words = assignments(ordered)
    while len(" ".join([head, *words])) > LONGEST - 2:
        words = words[1:]
    return " ".join([head, *(["…"] if len(words) < len(fields) else []), *words])


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
