"""The slots that a line of a config may fill, each with the module whose public classes are its kinds.

A slot belongs to a room that comes later, so none is named here: `scaling/__init__.py`, which Python runs before any
other file of the package, declares them.
"""

MODULES: dict[str, str] = {}
