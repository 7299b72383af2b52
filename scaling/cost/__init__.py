"""What a model costs: parameters, FLOPs and memory, counted without allocating it."""

from scaling.cost.count import SLOTS, Cost, by_length, cost, count, inspected

__all__ = ["SLOTS", "Cost", "by_length", "cost", "count", "inspected"]
