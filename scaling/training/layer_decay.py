"""Layer-wise decay of the learning rate: η fᵏ for what is k blocks below the top. (Sun et al. 2019, section 5.3.3)

The last block, what follows it, and the head learn at η; the embeddings, with the positions that a stack has in common,
are below the first block. An encoder and a decoder are counted each from its own top. A tensor that several places
share has the lowest of their rates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scaling.model.family import Family, Tower
from scaling.model.parameters import ParameterSpec, parameters
from scaling.training.parameter import Draw
from scaling.training.parametrization import Parametrization


@dataclass(frozen=True)
class LayerDecay:
    """A parametrization whose rates fall by `factor` with each block below the top."""

    inner: Parametrization
    factor: float
    depths: Mapping[str, int]

    def draw(self, spec: ParameterSpec) -> Draw:
        return self.inner.draw(spec)

    def rate(self, spec: ParameterSpec) -> float:
        return self.inner.rate(spec) * self.factor ** self.depths[spec.name]


def depths(model: Family) -> dict[str, int]:
    """How many blocks below the top each parameter is."""
    depth: dict[int, int] = {}
    specs = parameters(model)
    position = {id(parameter) for spec, parameter in specs if spec.slot == "position"}
    for tower in model.children():
        if not isinstance(tower, Tower):
            continue
        blocks = list(tower.stack.blocks)
        within = {id(parameter) for block in blocks for parameter in block.parameters()}
        for index, block in enumerate(blocks):
            for parameter in block.parameters():
                depth[id(parameter)] = max(depth.get(id(parameter), 0), len(blocks) - 1 - index)
        lowest = {id(parameter) for parameter in tower.embedding.parameters()}  # type: ignore[attr-defined]
        for key in lowest | (position & {id(parameter) for parameter in tower.parameters()} - within):
            depth[key] = max(depth.get(key, 0), len(blocks))
    return {spec.name: depth.get(id(parameter), 0) for spec, parameter in specs}
