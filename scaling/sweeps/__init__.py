"""Sweeps: a W&B sweep file is read and checked, run here or registered there, and its runs are brought back."""
