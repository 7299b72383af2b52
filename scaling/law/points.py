"""Points: a table of runs, what each of its columns means, and how many planned runs it has.

A law is fitted to points of one kind. Two parameter counts that include and leave out the embedding, two tokenizers or
two validation sets make two tables; `columns.py` refuses one that mixes them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from scaling.errors import ScalingError, nearest, plural
from scaling.law.parse_number import numeric

MEANINGS = MappingProxyType(
    {
        "N": "parameters",
        "D": "training tokens",
        "C": "training compute",
        "loss": "validation loss, nats per token",
        "U": "unique training tokens",
        "S": "optimizer steps",
        "B": "batch, tokens per step",
        "lr": "learning rate",
        "M": "training tokens per parameter",
        "width": "model width",
        "depth": "layers",
        "seed": "seed",
        "run": "name of the run",
        "trunk": "the run whose beginning it shares with others",
        "S_min": "optimizer steps at a batch far above the critical one",
        "C_min": "training compute at a batch far below the critical one",
        "B_crit": "critical batch, tokens per step",
        "S1": "area under the learning rate",
        "S2": "annealing area",
        "error": "error of a task",
        "accuracy": "accuracy of a task",
        "bits_per_byte": "bits per byte of a task's right answers",
        "loss_a": "validation loss on the set that is predicted from, nats per token",
        "loss_b": "validation loss on the set that is predicted, nats per token",
        "loss_u": "validation loss less that of the tokens' frequencies, nats per token",
        "V": "vocabulary",
        "H": "training characters",
        "experts": "experts",
        "granularity": "width of a dense hidden layer over that of one expert",
        "K": "parameters that a token uses over those of the dense model",
        "P": "all parameters over those that a token uses",
        "density": "fraction of the weights that are not zero",
        "streams": "parallel streams",
        "bits": "bits of a weight in training",
        "p": "proportion of the loss's own domain in the training data",
        "chance": "accuracy of guessing",
        "options": "answers that an example of the task offers",
        "examples": "examples that the score of a task is the mean of",
    }
)
"""The columns a law may ask for, in the papers' letters."""

USUAL_NAMES = MappingProxyType(
    {
        "N": ("params", "parameters", "n_params", "num_params", "num_parameters"),
        "D": ("tokens", "n_tokens", "num_tokens", "train_tokens", "training_tokens"),
        "C": ("flops", "compute", "train_flops", "training_flops"),
        "loss": ("val_loss", "valid_loss", "validation_loss", "eval_loss", "test_loss", "final_loss"),
    }
)
"""What tables call these columns, in small letters."""

POSITIVE = frozenset(
    {
        *("N", "D", "C", "loss", "U", "S", "B", "lr", "M", "width", "depth", "S_min", "C_min", "B_crit", "S1"),
        *("loss_a", "loss_b", "bits_per_byte", "options", "examples"),
        *("V", "H", "experts", "granularity", "K", "P", "density", "streams", "bits", "p"),
    }
)

SIZE_EXPONENTS = MappingProxyType({"loss": 0.1, "loss_a": 0.1, "bits_per_byte": 0.1})
"""A law in one of these columns measures distances by the size that the column falls with: L ∝ N^-0.1."""

SIGNED = frozenset({"loss_u"})
"""Targets that may be negative: differences of losses."""

PROPORTIONS = frozenset({"accuracy", "error"})
"""Columns that are means over examples which count as 0 or 1."""

EXAMPLES = "examples"

NOT_STATED = "not stated"


SETUP_QUESTIONS = {
    "hypothesis": "What question does the law answer?",
    "architecture": "Which architecture, and how do its width and depth grow together?",
    "optimizer": "Which optimizer?",
    "lr": "Which learning rates, and how were they chosen at each scale?",
    "schedule": "Which schedule, and was its length matched to each run's tokens?",
    "batch": "Which batch sizes, and do they change with scale?",
    "tokenizer": "Which tokenizer?",
    "data": "Which training data, and is any of it repeated?",
    "validation": "On which data is the loss measured?",
    "noise": "How large is the noise between seeds?",
}
"""What numbers do not show: a definition answers it, or a column of one value."""

SETUP_COLUMNS = {"batch": ("B",), "data": ("corpus", "dataset")}
"""Names under which tables give these."""


@dataclass(frozen=True)
class Points:
    """Columns of equal length, their stated definitions, and the runs that were planned but are not among them."""

    columns: Mapping[str, np.ndarray]
    definitions: Mapping[str, str] = field(default_factory=dict)
    excluded: int = 0
    failed: int = 0
    held_out: int = 0
    source: str = ""

    def __post_init__(self):
        lengths = {name: len(column) for name, column in self.columns.items()}
        if len(set(lengths.values())) > 1:
            raise ScalingError(
                "the columns differ in length", key="columns", value=lengths, fix="give every column a value a run"
            )

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def __contains__(self, name: str) -> bool:
        return name in self.columns

    def __getitem__(self, name: str) -> np.ndarray:
        self.refuse_absent([name])
        return self.columns[name]

    @property
    def used(self) -> int:
        """Fitted or held out to test the fit."""
        return len(self) + self.held_out

    @property
    def planned(self) -> int:
        """Every planned run is used, excluded or failed; these are all cases."""
        return self.used + self.excluded + self.failed

    def definition(self, name: str) -> str:
        return self.definitions.get(name, NOT_STATED)

    def where(self, mask: np.ndarray) -> Points:
        """The points of a boolean mask; those left out are counted as excluded."""
        mask = np.asarray(mask)
        if mask.dtype != bool or mask.shape != (len(self),):
            raise ScalingError("needs one true or false a point", key="mask", value=mask.shape, fix="compare a column")
        columns = {name: column[mask] for name, column in self.columns.items()}
        return replace(self, columns=columns, excluded=self.excluded + int((~mask).sum()))

    def pooled(self) -> dict[str, int]:
        """Columns of words that differ between groups of points, and how many values each has: which no law models."""
        kinds = {}
        for name, column in self.columns.items():
            values = (
                len(set(column.tolist()))
                if column.dtype == object and name not in ("run", "trunk", "status", "held_out")
                else 1
            )
            if 1 < values <= len(self) / 2:
                kinds[name] = values
        return kinds

    def hold_out(self, mask: np.ndarray) -> tuple[Points, Points]:
        """The points to fit and those of the mask, held out to test the fit; both count as used."""
        rest, tested = self.where(~np.asarray(mask)), self.where(mask)
        return (
            replace(rest, excluded=self.excluded, held_out=self.held_out + len(tested)),
            replace(tested, excluded=self.excluded, held_out=self.held_out + len(rest)),
        )

    def take(self, order: np.ndarray) -> Points:
        """The points in another order, or drawn again as a bootstrap does; the counts stay those of the table."""
        return replace(self, columns={name: column[order] for name, column in self.columns.items()})

    def with_column(self, name: str, values: np.ndarray, definition: str) -> Points:
        columns = {**self.columns, name: np.asarray(values)}
        return replace(self, columns=columns, definitions={**self.definitions, name: definition})

    def numbers(self, name: str) -> np.ndarray:
        """A column a law can use: present, numeric, finite, and positive where its meaning is."""
        column = self[name]
        place = self.source or None
        column = numeric(name, column, self.source)
        missing = int((~np.isfinite(column)).sum())
        if missing:
            raise ScalingError(
                f"{missing} of {len(column)} values are missing or not finite",
                file=place,
                key=name,
                fix="fill them, or mark those runs as diverged or failed in a `status` column",
            )
        if name in POSITIVE and len(column) and column.min() <= 0:
            raise ScalingError(
                f"must be positive ({MEANINGS[name]})",
                file=place,
                key=name,
                value=float(column.min()),
                fix=f"correct {int((column <= 0).sum())} of {len(column)} rows, or leave them out: --where '{name}>0'",
            )
        return column

    def require(self, inputs: Sequence[str], parameters: int, target: str | None = None) -> None:
        """Refuse what determines no law: an absent or one-valued column, fewer distinct scales than parameters."""
        self.refuse_absent(inputs if target is None else (*inputs, target))
        for name in inputs:
            self.numbers(name)
        place = self.source or None
        if not len(self):
            raise ScalingError(
                f"there is no finished run to fit: {self.count()}",
                file=place,
                fix="finish some, or correct their `status`",
            )
        for name in inputs:
            if len(np.unique(self.numbers(name))) == 1:
                raise ScalingError(
                    "has one value, so no law in it can be seen",
                    file=place,
                    key=name,
                    value=float(self.numbers(name)[0]),
                    fix=f"add runs at another {name}, or fit a law without it",
                )
        scales = len(np.unique(np.column_stack([self.numbers(name) for name in inputs]), axis=0))
        if scales < parameters:
            raise ScalingError(
                f"{plural(scales, 'distinct scale')} ({', '.join(inputs)}) cannot determine {parameters} parameters",
                file=place,
                fix=f"add {plural(parameters - scales, 'scale')} or more, or fit a law with fewer parameters",
            )

    def count(self) -> str:
        split = f" ({len(self)} fitted, {self.held_out} held out)" if self.held_out else ""
        return f"{self.used} used{split} + {self.excluded} excluded + {self.failed} failed = {self.planned} planned"

    def refuse_absent(self, names: Sequence[str]) -> None:
        """Refuse a table that lacks columns, all of them in one message, with the option that names the likely ones."""
        absent = [name for name in names if name not in self]
        if absent:
            described = ", ".join(f"{name!r}" + (f" ({MEANINGS[name]})" if name in MEANINGS else "") for name in absent)
            option = self.map_option(absent)
            choices = nearest(absent[0], self.columns) if len(absent) == 1 else f"of {', '.join(self.columns)}"
            fix = f"name yours by {option} ({choices})" if "COLUMN" in option else f"add {option}"
            what = f"there is no column {described}" if len(absent) == 1 else f"there are no columns {described}"
            raise ScalingError(what, file=self.source or None, fix=fix)

    def map_option(self, names: Sequence[str]) -> str:
        """`--map N=params loss=COLUMN`: for each name the one column whose name is alike, or usual for it."""
        pairs = []
        for name in names:
            usual = {name.casefold(), *USUAL_NAMES.get(name, ())}
            likely = [column for column in self.columns if re.split(r"[./]", column)[-1].casefold() in usual]
            pairs.append(shlex.quote(f"{name}={likely[0] if len(likely) == 1 else 'COLUMN'}"))
        return f"--map {' '.join(pairs)}"
