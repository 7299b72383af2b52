"""IsoFLOP curves of fifteen settings: why Kaplan's and Chinchilla's exponents of the optimal size disagreed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scaling.law.columns import from_rows
from scaling.law.points import Points
from scaling.laws.approaches import IsoFlop, PowerLawFit, fit_power_law, isoflop
from scaling.published.credit import Credit, Reproduction, rows

CREDIT = Credit(
    "Porian et al. 2024, Resolving Discrepancies in Compute-Optimal Scaling of Language Models",
    "2406.19146",
    "github.com/formll/resolving-scaling-law-discrepancies",
    "0dc60d9",
    "MIT-style",
)

NOISE = {"rw": 0.002, "owt2": 0.01}
"""Standard deviation of the loss between seeds, nats. The published code lets it grow from a log loss of 3 upward,
which no loss here reaches, so its noise is constant."""

SIZES = {
    "kaplan": "parameters without embedding and head",
    "standard": "parameters with the head",
    "attention": "parameters with the head, and attention counted as parameters",
}


@dataclass(frozen=True)
class Setting:
    """One way to train and to count: corpus, hyperparameters, warmup, decay of the learning rate, N, and which loss."""

    dataset: str
    hparams: str
    warmup: str
    decay: str
    param_count: str
    val: str

    def chooses(self, row: dict[str, str]) -> bool:
        return all(row[name] == value for name, value in vars(self).items())


STEPS = {
    "Kaplan et al. reproduced": Setting("rw", "base", "long", "kaplan", "kaplan", "train"),
    "last layer's FLOPs counted": Setting("rw", "base", "long", "kaplan", "standard", "val"),
    "warmup shortened": Setting("rw", "base", "short", "kaplan", "standard", "val"),
    "cosine decay": Setting("rw", "base", "short", "chinchilla", "standard", "val"),
    "optimizer tuned": Setting("rw", "tuned", "short", "const", "standard", "val"),
}
"""The five corrections of the paper's Figure 1, one on top of the other, on RefinedWeb."""


def settings() -> tuple[Setting, ...]:
    """All fifteen."""
    names = Setting.__dataclass_fields__
    return tuple(Setting(*(row[name] for name in names)) for row in rows("porian2024_published_fits.csv"))


def points(setting: Setting) -> Points:
    """The IsoFLOP points of one setting."""
    return from_rows(
        (row for row in rows("porian2024_isoflop_points.csv") if setting.chooses(row)),
        define={
            "N": SIZES[setting.param_count],
            "D": "tokens",
            "C": "training FLOPs of the parameters that N counts",
            "loss": {"train": "training loss, smoothed", "val": "validation loss"}[setting.val] + ", nats per token",
            "validation": f"{setting.dataset}, {setting.val}",
            "tokenizer": "GPT-NeoX-20B",
        },
        source=f"porian2024, {', '.join(vars(setting).values())}",
    )


def law(setting: Setting, kind: str = "akima") -> IsoFlop:
    """The paper's fit from the points: Akima minima, medians of 1,000 draws of seed noise, weighted."""
    return isoflop(points(setting), kind=kind, noise=NOISE[setting.dataset])


def law_of_pairs(setting: Setting) -> PowerLawFit:
    """The last step alone, from the published minima and their spreads."""
    chosen = [row for row in rows("porian2024_optimal_pairs.csv") if setting.chooses(row) and row["n"]]
    compute, size, spread = (np.array([float(row[name]) for row in chosen]) for name in ("flops", "n", "n_star_std"))
    return fit_power_law(compute, size, spread)


def published(setting: Setting) -> dict[str, float]:
    """The published exponent of N*, and the bounds of its 95% interval."""
    row = next(row for row in rows("porian2024_published_fits.csv") if setting.chooses(row))
    names = {"exponent": "weighted.n_exponent", "low": "n_exp_lo", "high": "n_exp_hi"}
    return {name: float(row[column]) for name, column in names.items()}


def reproduce() -> list[Reproduction]:
    out = []
    titles = {setting: title for title, setting in STEPS.items()}
    for setting in settings():
        title = titles.get(setting, ", ".join(vars(setting).values()))
        theirs = published(setting)["exponent"]
        pairs, ours = law_of_pairs(setting).exponent, law(setting).law.exponent
        out.append(Reproduction("isoflop_akima", "porian2024", f"a of {title}, from the minima", theirs, pairs, 1e-9))
        out.append(
            Reproduction(
                "isoflop_akima",
                "porian2024",
                f"a of {title}, from the points",
                theirs,
                ours,
                0.0015,
                "other draws of the seed noise",
            )
        )
    return out
