"""What every objective offers, and the checks that they share."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal, Protocol

import numpy as np

from scaling.batch import Batch
from scaling.data.batches import Takes
from scaling.data.source import Rows, Vocabulary
from scaling.errors import ScalingError

Family = Literal["encoder", "decoder", "encoder_decoder"]
EVERY_TEXT_TO_TEXT: tuple[Family, ...] = ("encoder_decoder", "decoder")


class Objective(Protocol):
    """Made by `Kind(vocabulary, length, family, *, keys of its line)`."""

    families: ClassVar[tuple[Family, ...]]  # the families that can take it
    separates: ClassVar[tuple[Family, ...]] = ()  # those for which it keeps the documents of a window apart
    is_code: ClassVar[bool] = False  # whether its losses are the code length of a text, token after token
    writes_sentinels: ClassVar[bool] = False  # whether sentinels stand between the text in its targets
    labels: ClassVar[str | None] = None  # the kind of answers that it makes for a head of labels, whatever the data
    previous: ClassVar[bool] = False  # whether its labels are the token before each, for a BiLM
    vocabulary: Vocabulary  # with the specials it adds: what the model's tables must hold
    reads: int  # tokens of a window of the source, so that the model's length is filled
    others: int  # further windows, drawn at random, that a sample takes
    takes: Takes  # what a row of the source must be

    def __call__(self, rows: Rows, keys: np.ndarray) -> Batch:
        """The batch of these rows; `keys` [n] are all there is of chance. Rows of `others` follow the samples' own."""
        ...


def meet(objective: object, family: Family, families: tuple[Family, ...]) -> Family:
    """The family, if it can take the objective."""
    if family not in families:
        raise ScalingError(
            f"it trains models of the family {' or '.join(families)}, and this is of the family {family}",
            key="kind",
            value=type(objective).__name__,
            fix="choose another objective or another model",
        )
    return family


def fitting(length: int, family: Family, widths: Callable[[int], tuple[int, int]]) -> int:
    """The most tokens whose `widths`, of source and target, fit into `length`: each side, or a decoder's one line."""

    def fits(count: int) -> bool:
        sides = widths(count)
        return (sum(sides) if family == "decoder" else max(sides)) <= length

    # Hiding shortens a text by less than half, since what is hidden must fit as a target.
    for count in range(2 * length, 1, -1):
        if fits(count):
            return count
    raise too_short(length)


def room(length: int, frame: int) -> int:
    """What a frame of that many specials leaves of the model's length."""
    if length - frame < 2:
        raise too_short(length)
    return length - frame


def too_short(length: int) -> ScalingError:
    return ScalingError(f"a length of {length} is too short for it", fix="take a larger size.length")
