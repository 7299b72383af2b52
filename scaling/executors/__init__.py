"""Executors: what runs the jobs of a study or a sweep, on this machine or elsewhere."""
