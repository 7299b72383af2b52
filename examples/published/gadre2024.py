"""Gadre et al. 2024: 104 models over-trained on three corpora, the law L(C, M), and its two long extrapolations."""

from __future__ import annotations

from pathlib import Path

from scaling.laws.fit import FittedLaw, fit
from scaling.laws.points import Points, load_points

CREDIT = (
    "Gadre et al. 2024, Language models scale reliably with over-training and on downstream tasks, arXiv 2403.08540; "
    "points from github.com/mlfoundations/scaling at a003c49 (MIT)"
)
CORPORA = {"c4_original": "C4", "rpj": "RedPajama", "rw_original": "RefinedWeb"}
EXPONENT, FLOOR = -0.27285, 1.83665
"""The published -2η and E."""
ERRORS = {"1.4B, M=640": (1_439_795_200, 640, 0.7103), "6.9B, M=20": (6_889_410_560, 20, 0.7320)}
"""N, M and the published relative error of the loss in percent."""


def points(corpus: str = "rpj", loss: str = "loss_c4_val") -> Points:
    """Return the models of one training corpus with one of eight validation losses."""
    return load_points(
        Path(__file__).parent / "tables" / "gadre2024_models.csv",
        rename={"loss": loss, "run": "name", "M": "D/N", "B": "bs"},
        where=[f"dataset={corpus}"],
        define={
            "N": "all parameters, embedding and head included",
            "D": "tokens, of one epoch",
            "C": "6ND",
            "loss": f"{loss.removeprefix('loss_')}, nats per token",
            "B": "sequences of 2,048 tokens",
            "tokenizer": "GPT-NeoX-20B",
            "validation": loss.removeprefix("loss_"),
        },
        name=f"gadre2024, {CORPORA[corpus]}",
    )


def law(table: Points) -> FittedLaw:
    """Fit the paper's law as the paper does: least squares of the loss of four sizes at M = 20, and of one at 320."""
    size, ratio = table["N"], table["M"]
    fitted = ((ratio == 20) & (size <= 411_616_256)) | ((ratio == 320) & (size == 10_569_312))
    return fit("over_training", table.where(fitted), objective="squared")
