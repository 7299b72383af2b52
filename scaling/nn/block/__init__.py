"""Blocks: an order over branches, each of them residual(norm, piece)."""

from scaling.nn.block.evolved import EvolvedDecoder, EvolvedEncoder
from scaling.nn.block.parallel import Parallel
from scaling.nn.block.serial import Serial

__all__ = ["EvolvedDecoder", "EvolvedEncoder", "Parallel", "Serial"]
