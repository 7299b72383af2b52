"""Porian et al. 2024: IsoFLOP curves of fifteen settings, and why the exponents of Kaplan and Chinchilla disagreed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas

from scaling.laws.approaches import IsoFlop, PowerLaw, fit_power_law, isoflop
from scaling.laws.points import Points, load_points

CREDIT = (
    "Porian et al. 2024, Resolving Discrepancies in Compute-Optimal Scaling of Language Models, arXiv 2406.19146; "
    "points from github.com/formll/resolving-scaling-law-discrepancies at 0dc60d9 (MIT-style)"
)
Setting = tuple[str, ...]
TABLES = Path(__file__).parent / "tables"
COLUMNS = ("dataset", "hparams", "warmup", "decay", "param_count", "val")
"""A setting: corpus, hyperparameters, warmup, decay of the learning rate, how N is counted, and which loss."""
STEPS: dict[str, Setting] = {
    "Kaplan et al. reproduced": ("rw", "base", "long", "kaplan", "kaplan", "train"),
    "last layer's FLOPs counted": ("rw", "base", "long", "kaplan", "standard", "val"),
    "warmup shortened": ("rw", "base", "short", "kaplan", "standard", "val"),
    "cosine decay": ("rw", "base", "short", "chinchilla", "standard", "val"),
    "optimizer tuned": ("rw", "tuned", "short", "const", "standard", "val"),
}
"""The settings of the paper's Figure 1, each with one more correction, on RefinedWeb."""
NOISE = {"rw": 0.002, "owt2": 0.01}
"""Standard deviation of the loss between seeds, nats. In the published code it grows above a log loss of 3; no loss
here is so large."""
SIZES = {
    "kaplan": "parameters without embedding and head",
    "standard": "parameters with the head",
    "attention": "parameters with the head, and attention counted as parameters",
}


def settings() -> list[Setting]:
    """Return all fifteen settings."""
    return list(pandas.read_csv(TABLES / "porian2024_published_fits.csv")[list(COLUMNS)].itertuples(False, None))


def points(setting: Setting) -> Points:
    """Return the IsoFLOP points of one setting."""
    chosen = dict(zip(COLUMNS, setting, strict=True))
    return load_points(
        TABLES / "porian2024_isoflop_points.csv",
        where=[f"{name}={value}" for name, value in chosen.items()],
        define={
            "N": SIZES[chosen["param_count"]],
            "D": "tokens",
            "C": "training FLOPs of the parameters that N counts",
            "loss": {"train": "training loss, smoothed", "val": "validation loss"}[chosen["val"]] + ", nats per token",
            "validation": f"{chosen['dataset']}, {chosen['val']}",
            "tokenizer": "GPT-NeoX-20B",
        },
        name=f"porian2024, {', '.join(setting)}",
    )


def law(setting: Setting) -> IsoFlop:
    """Fit the points as the paper does: Akima minima, medians of 1,000 draws of seed noise, weighted."""
    return isoflop(points(setting), kind="akima", noise=NOISE[setting[0]])


def law_of_minima(setting: Setting) -> PowerLaw:
    """Fit only the power law, to the published minima and their spreads."""
    minima = _rows("porian2024_optimal_pairs.csv", setting).dropna(subset="n")
    return fit_power_law(minima["flops"].to_numpy(), minima["n"].to_numpy(), minima["n_star_std"].to_numpy())


def published(setting: Setting) -> Mapping[str, float]:
    """Return the published exponent of N*, and the ends of its 95% interval."""
    (row,) = _rows("porian2024_published_fits.csv", setting).to_dict("records")
    return {"exponent": row["weighted.n_exponent"], "low": row["n_exp_lo"], "high": row["n_exp_hi"]}


def _rows(table: str, setting: Setting) -> pandas.DataFrame:
    rows = pandas.read_csv(TABLES / table)
    return rows.loc[(rows[list(COLUMNS)] == list(setting)).all(axis=1)]
