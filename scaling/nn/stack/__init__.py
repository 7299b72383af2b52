"""Stacks: an order over blocks, and what stands at its end."""

from scaling.nn.stack.sequential import Sequential

__all__ = ["Sequential"]
