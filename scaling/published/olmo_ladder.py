"""The OLMo ladder's final points: loss from (N, D), then the tasks from loss, held out at the largest size."""

from __future__ import annotations

from scaling.law.columns import from_rows
from scaling.law.forms import named
from scaling.law.forms.composed import Composed
from scaling.law.points import Points
from scaling.law.two_step import TwoStep, fit_two_steps
from scaling.published.credit import Credit, Reproduction, rows

CREDIT = Credit(
    "Bhagia et al. 2024, Establishing Task Scaling Laws via Compute-Efficient Model Ladders",
    "2412.04403",
    "github.com/allenai/OLMo-ladder",
    "67a3f44",
    "Apache-2.0",
)
SIZE_OF_3B = "3169537280"
"""The table leaves N of the largest size empty; this is the count in the authors' code."""

LOSS = "eval/c4_en-validation/CrossEntropyLoss"
TASK = "eval/downstream_bpb/{}_rc_5shot_bpb"


def points(task: str = "arc_easy_val") -> Points:
    """All 30 runs: N, D, C4 loss, and as `accuracy` the probability of a byte of the task's right answers, 2^-bits."""
    table = from_rows(
        ({**row, "N": row["N"] or SIZE_OF_3B} for row in rows("olmo_ladder_final_points.csv")),
        rename={"loss": LOSS, "bits": TASK.format(task), "B": "batch_size_in_tokens", "S": "step"},
        define={
            "N": "parameters without embedding",
            "D": "tokens",
            "loss": "C4 validation loss, nats per token",
            "bits": f"{task}, bits per byte of the right answer",
            "validation": "c4_en",
            "tokenizer": "dolma2",
        },
        source="olmo_ladder",
    )
    return table.with_column("accuracy", 2.0 ** -table["bits"], f"{task}, probability of a byte of the right answer")


def two_step(task: str = "arc_easy_val") -> tuple[TwoStep, Points]:
    """Bhagia et al.'s chain fitted to the sizes up to 1.3B, and the 3B runs that were held out."""
    table = points(task)
    small, large = table.hold_out(table["N"] == table["N"].max())
    return fit_two_steps(Composed(named("chinchilla"), named("task_sigmoid")), small), large


def reproduce() -> list[Reproduction]:
    """No published scalar can be reproduced from these points; the two-step prediction has no comparison."""
    return []
