"""Errors, printing, files and processes, which every room uses; and the version, which the build reads too."""

__version__ = "0.1.0"
