"""104 models over-trained on three corpora: the over-training law L(C, M) and its two long extrapolations."""

from __future__ import annotations

import numpy as np

from scaling.law.columns import from_rows
from scaling.law.fit import Fit, fit
from scaling.law.objective import Squared
from scaling.law.points import Points
from scaling.published.credit import Credit, Reproduction, rows

CREDIT = Credit(
    "Gadre et al. 2024, Language models scale reliably with over-training and on downstream tasks",
    "2403.08540",
    "github.com/mlfoundations/scaling",
    "a003c49",
    "MIT",
)
CORPORA = {"c4_original": "C4", "rpj": "RedPajama", "rw_original": "RefinedWeb"}
SMALLEST = 10_569_312
LARGEST_FITTED = 411_616_256

EXPONENT, FLOOR = -0.27285, 1.83665
ERRORS = {"1.4B, M=640": (1_439_795_200, 640, 0.7103), "6.9B, M=20": (6_889_410_560, 20, 0.7320)}


def points(corpus: str = "rpj", loss: str = "loss_c4_val") -> Points:
    """The models of one training corpus with one of eight validation losses, C4's unless another is named."""
    return from_rows(
        (row for row in rows("gadre2024_models.csv") if row["dataset"] == corpus),
        rename={"loss": loss, "run": "name", "M": "D/N", "lr": "lr", "B": "bs"},
        define={
            "N": "all parameters, embedding and head included",
            "D": "tokens, of one epoch",
            "C": "6ND",
            "loss": f"{loss.removeprefix('loss_')}, nats per token",
            "B": "sequences of 2,048 tokens",
            "tokenizer": "GPT-NeoX-20B",
            "validation": loss.removeprefix("loss_"),
        },
        source=f"gadre2024, {CORPORA[corpus]}",
    )


def fitted(table: Points) -> Points:
    """The five models the paper fits: four sizes at 20 tokens per parameter, and the smallest at 320."""
    size, ratio = table["N"], table["M"]
    return table.where(((ratio == 20) & (size <= LARGEST_FITTED)) | ((ratio == 320) & (size == SMALLEST)))


def law(table: Points) -> Fit:
    """The paper's fit: least squares of the loss."""
    return fit("over_training", fitted(table), objective=Squared())


def reproduce() -> list[Reproduction]:
    table = points()
    paper_fit = law(table)
    out = [
        Reproduction(paper_fit.form.name, "gadre2024", "exponent -2η", EXPONENT, -2 * paper_fit.estimates["eta"], 1e-5),
        Reproduction(paper_fit.form.name, "gadre2024", "E", FLOOR, paper_fit.estimates["E"], 1e-5),
    ]
    for name, (size, ratio, published) in ERRORS.items():
        row = int(np.flatnonzero((table["N"] == size) & (table["M"] == ratio))[0])
        predicted = float(paper_fit.predict(C=table["C"][row], M=table["M"][row]))
        percent = 100 * abs(predicted / table["loss"][row] - 1)
        out.append(
            Reproduction(
                paper_fit.form.name, "gadre2024", f"relative error of the loss, {name} (%)", published, percent, 5e-5
            )
        )
    return out
