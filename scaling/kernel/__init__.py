"""Kernels: what stands between the matrix products of a small model on a CPU, in one pass over memory each, and
attention with its products.

A source a family, `*.cpp`, which the machine's own compiler makes when a run first asks; beside it the functions that
call it, with their gradients. Each computes what torch's operations do, to rounding, and `serves` says where it stands
in for them: float32 and bfloat16 on a CPU. docs/performance.md has what that saves.
"""
