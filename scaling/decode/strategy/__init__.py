"""Strategies: which of the tokens that may come is written. Each has `write(reader, steps, stop)`."""

from scaling.decode.strategy.beam import Beam
from scaling.decode.strategy.one_by_one import Greedy, Sample

__all__ = ["Beam", "Greedy", "Sample"]
