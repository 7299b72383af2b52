"""The predictions on record of a ledger, and how many of the losses were inside their intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scaling.errors import plural
from scaling.ledger import Ledger
from scaling.reports.markup import Html, tag
from scaling.studies.predictions import FOLDER, calibration, registered


def on_record(ledger: Ledger) -> Html | None:
    """A paragraph; none where nothing was predicted."""
    record = calibration(registered(ledger))
    if not record["predictions"] and not record["altered"]:
        return None
    return tag("p", f"Predictions on record in this ledger: {sentence(record)}.")


def sentence(record: Mapping[str, Any]) -> str:
    """The calibration over all predictions."""
    levels = [
        f"{level['inside']} of {level['scored']} losses inside their {100 * level['level']:g}% interval of a new run"
        for level in record["levels"]
    ]
    error = record["mean_absolute_relative_error"]
    return "; ".join(
        [
            f"{plural(record['predictions'], 'prediction')}, {record['scored']} scored, {record['waiting']} waiting",
            *levels,
            *([] if error is None else [f"mean error {error:.2%}"]),
            *(f"altered since, and not counted: {FOLDER}/{file}" for file in record["altered"]),
        ]
    )
