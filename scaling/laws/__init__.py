"""Scaling laws: fit them, bound them, predict and design with them."""
