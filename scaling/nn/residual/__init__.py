"""Residual placements: a branch is residual(norm, piece).

Each takes the shape, `norm`, a function that makes a norm of the stream's width, and the built `piece`, and is called
with the stream x and the context.
"""

from scaling.nn.residual.gru import GRU
from scaling.nn.residual.placement import NoResidual, Post, Sandwich
from scaling.nn.residual.pre import Pre
from scaling.nn.residual.scaled import Fixup, ReZero

__all__ = ["GRU", "Fixup", "NoResidual", "Post", "Pre", "ReZero", "Sandwich"]
