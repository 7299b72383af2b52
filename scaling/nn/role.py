"""Roles: what a parameter is for, declared where it is made. Initialisation, learning rates, Fixup and the costs read
roles, never names.
"""

from __future__ import annotations

from typing import Literal, TypeVar

from torch import nn

# input: a matrix from vectors of a width of their own into the stream (an embedding's projection)
# query: the matrix that makes queries, into which T5's initialiser puts the scale of attention
# output: the last matrix of a piece: into the stream, or a head's onto its classes
# hidden: every other matrix, and all else that is drawn
# table: rows that are looked up by token, position or distance, and those that a head predicts by
# gain: what starts at a constant that its piece sets: gains, biases, shifts
Role = Literal["input", "query", "output", "hidden", "table", "gain"]

M = TypeVar("M", bound=nn.Module)


def declare(module: M, **roles: Role) -> M:
    """`module`, whose own parameters of these names have these roles."""
    absent = sorted(name for name in roles if not hasattr(module, name))
    if absent:
        raise ValueError(f"{type(module).__name__} has no parameter {', '.join(absent)}")
    vars(module)["roles"] = {**vars(module).get("roles", {}), **roles}
    return module


def role(module: nn.Module, name: str) -> Role:
    """The role of a module's own parameter. One that declares none is hidden, or a gain if it is a vector."""
    declared: Role | None = vars(module).get("roles", {}).get(name)
    return declared or ("gain" if module.get_parameter(name).ndim < 2 else "hidden")
