"""What a model costs: parameters, FLOPs and memory, counted without allocating it."""

from scaling.cost.count import SLOTS, Cost, cost, count, inspected

__all__ = ["SLOTS", "Cost", "cost", "count", "inspected"]
