"""A disk that fills up."""

import os
from pathlib import Path


def fill(folder: Path, leave: int) -> None:
    """Leave so many bytes of room on a file system."""
    with (folder / "filler").open("wb", buffering=0) as file:
        free = os.statvfs(folder)
        file.write(bytes(max(0, free.f_bavail * free.f_frsize - leave)))
