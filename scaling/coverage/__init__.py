"""Measured coverage of the intervals: over simulated studies, and over the held-out runs of published ones."""
