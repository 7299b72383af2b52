"""Assembly: the experiments of many runs at once. What runs share is read, built and checked once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from scaling.config import load, setting
from scaling.training.experiment import Experiment, assemble, varied
from scaling.training.values import VARIED

Words = tuple[str, ...]

_setting = lru_cache(maxsize=1 << 16)(setting)


def assembled(base: str, words: Sequence[Words]) -> list[tuple[Experiment, Words]]:
    """The experiment of each run's words, in their order: `assemble(load(base, words))` of each; and its family.

    Runs of a family differ in seed and budget alone, so that those of one seed have one trunk.
    """
    families: dict[Words, list[int]] = {}
    for index, line in enumerate(words):
        families.setdefault(_common(line), []).append(index)
    by_index: dict[int, tuple[Experiment, Words]] = {}
    for family, members in families.items():
        experiments = _family(base, [words[index] for index in members])
        by_index |= {index: (experiment, family) for index, experiment in zip(members, experiments)}
    return [by_index[index] for index in range(len(words))]


def _common(words: Words) -> Words:
    """The words without the values of what varies."""
    return tuple(f"{key}=" if (key := word.partition("=")[0]) in VARIED else word for word in words)


def _family(base: str, words: Sequence[Words]) -> Iterator[Experiment]:
    first = assemble(load(base, words[0]))
    values = [dict(_setting(word) for word in line if word.partition("=")[0] in VARIED) for line in words]
    # A key that others refer to (${train.tokens}), or that a later word takes back, is found by trying it.
    tried = ((varied(first, values[index]), assemble(load(base, words[index]))) for index in _probes(values))
    if all(value.config.tree == alone.config.tree for value, alone in tried):
        yield from (varied(first, value) for value in values)
    else:
        yield from (assemble(load(base, line)) for line in words)


def _probes(values: Sequence[dict[str, Any]]) -> set[int]:
    """For each key the first run that gives it another value than the first run does."""
    differing = ([index for index, value in enumerate(values) if value[key] != values[0][key]] for key in values[0])
    return {indices[0] for indices in differing if indices}
