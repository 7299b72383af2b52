"""Bhagia et al. 2024: the OLMo ladder's 30 final points; loss from (N, D), then the score of a task from the loss."""

from __future__ import annotations

from pathlib import Path

import pandas

from scaling.laws.catalogue import named
from scaling.laws.law import composed
from scaling.laws.points import Points, load_points
from scaling.laws.predict import TwoStep, fit_two_steps

CREDIT = (
    "Bhagia et al. 2024, Establishing Task Scaling Laws via Compute-Efficient Model Ladders, arXiv 2412.04403; "
    "points from github.com/allenai/OLMo-ladder at 67a3f44 (Apache-2.0)"
)
SIZE_OF_3B = 3_169_537_280
"""The table leaves N of the largest size empty; this is the count in the authors' code."""
LOSS = "eval/c4_en-validation/CrossEntropyLoss"
TASK = "eval/downstream_bpb/{}_rc_5shot_bpb"


def points(task: str = "arc_easy_val") -> Points:
    """Return N, D, C4 loss, and `accuracy`: the probability of a byte of the task's right answers, 2^-bits."""
    table = load_points(
        pandas.read_csv(Path(__file__).parent / "tables" / "olmo_ladder_final_points.csv").fillna({"N": SIZE_OF_3B}),
        rename={"loss": LOSS, "bits": TASK.format(task), "B": "batch_size_in_tokens", "S": "step"},
        define={
            "N": "parameters without embedding",
            "D": "tokens",
            "loss": "C4 validation loss, nats per token",
            "bits": f"{task}, bits per byte of the right answer",
            "validation": "c4_en",
            "tokenizer": "dolma2",
        },
        name="olmo_ladder",
    )
    return table.with_column("accuracy", 2.0 ** -table["bits"], f"{task}, probability of a byte of the right answer")


def two_step(task: str = "arc_easy_val") -> tuple[TwoStep, Points]:
    """Return Bhagia et al.'s chain fitted to the sizes up to 1.3B, and the 3B runs that were held out."""
    table = points(task)
    small, large = table.hold_out(table["N"] == table["N"].max())
    return fit_two_steps(composed(named("chinchilla"), named("task_sigmoid")), small), large
