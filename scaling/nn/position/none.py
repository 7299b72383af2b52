from __future__ import annotations

from scaling.nn.context import Pattern
from scaling.nn.position.hooks import Hooks
from scaling.shape import Shape


class NoPosition(Hooks):
    """No position at all: order is known only through the mask. (Haviv et al. 2022; the lectures' control)"""

    def __init__(self, shape: Shape, pattern: Pattern):
        super().__init__()
