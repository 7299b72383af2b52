"""Kernels: the operations between the matrix products of a small model on a CPU, each fused, and attention with its
products.

A source a family, `*.cpp`, which the machine's own compiler builds at its first use (compiled.py). Each computes what
torch's operations do, to rounding, for float32 and bfloat16 on a CPU; operations.py chooses between them, and is what
pieces call. docs/performance.md has what the kernels save.
"""
