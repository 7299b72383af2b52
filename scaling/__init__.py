"""Scaling studies of transformers."""
