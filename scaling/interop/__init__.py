"""Weights and configs to and from other projects' formats."""
