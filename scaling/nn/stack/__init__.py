"""Stacks: an order over blocks, and what comes at its end."""

from scaling.nn.stack.funnel import Funnel, UpsampledFunnel
from scaling.nn.stack.sequential import Sequential
from scaling.nn.stack.universal import Universal

__all__ = ["Funnel", "Sequential", "Universal", "UpsampledFunnel"]
