"""The older room of laws, which `scaling.laws` replaces file by file."""

import scaling.laws  # noqa: F401  (its files and those of this room name each other until this room is gone)
