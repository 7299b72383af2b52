"""Checkpoint: a folder of files that is whole or not there, and is never loaded when a bit of it has changed.

    checkpoints/<step>/manifest.json     step, note, and for each file its bytes and SHA-256; itself sealed
    checkpoints/<step>/...               whatever the trainer wrote

It is written under a temporary name in the same folder, every file and folder synced, and then renamed. So a crash at
any moment leaves the checkpoints before it as they were. Every byte is read again and compared before it is used.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from scaling import atomic
from scaling.errors import from_os
from scaling.ledger.document import Damaged, disk, read, seal

FOLDER, MANIFEST = "checkpoints", "manifest.json"
KEEP = 2  # checkpoints of a run: the last, and the one before it should the last be damaged

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose every byte has been checked: its step, its folder, and the note written with it."""

    step: int
    folder: Path
    note: Mapping[str, Any] = field(default_factory=dict)


Belongs = Callable[[Checkpoint], bool]


def name(step: int) -> str:
    """The name of the folder of a step's checkpoint."""
    return f"{step:012d}"


def steps(run: Path) -> dict[int, Path]:
    """The checkpoints in the folder of a run by step, not checked, the latest first."""
    folder = run / FOLDER
    if not folder.is_dir():
        return {}
    with disk("cannot list checkpoints"):
        # A folder without a manifest is one that was being removed.
        there = [path for path in folder.iterdir() if path.name.isdecimal() and (path / MANIFEST).exists()]
    return {int(path.name): path for path in sorted(there, reverse=True)}


def latest(run: Path, belongs: Belongs = lambda _: True) -> Checkpoint | None:
    """The latest whole checkpoint of a run that belongs to it; those passed over are warned of."""
    return _first_whole(steps(run).values(), belongs)


def at(run: Path, step: int, belongs: Belongs = lambda _: True) -> Checkpoint | None:
    """The whole checkpoint of exactly this step, None where there is none; a damaged one is warned of."""
    path = steps(run).get(step)
    return None if path is None else _first_whole([path], belongs)


def final(run: Path, result: Mapping[str, Any] | None) -> Checkpoint | None:
    """The checkpoint with the weights that a result is of: its best step's where it names one, else the latest whole
    one.
    """
    best = None if result is None else result.get("best_step")
    return latest(run) if best is None else at(run, best)


def note(folder: Path) -> Mapping[str, Any]:
    """The note written with a checkpoint, whose files are not checked; none where it cannot be read."""
    try:
        return (read(folder / MANIFEST) or {}).get("note", {})
    except (Damaged, OSError):
        return {}


@contextmanager
def writing(run: Path, step: int, note: Mapping[str, Any], belongs: Belongs = lambda _: True) -> Iterator[Path]:
    """A temporary folder to write a checkpoint's files into; it becomes the checkpoint when the block ends well.

    What a step holds is determined, so a whole one that is there and belongs to the run stays: taking it away first
    would leave a moment with no checkpoint at all.
    """
    final = run / FOLDER / name(step)
    temporary = atomic.temporary(final)
    try:
        final.parent.mkdir(exist_ok=True)
        temporary.mkdir()
        yield temporary
        _seal(temporary, step, note)
        if at(run, step, belongs) is None:
            drop(final)
            try:
                os.replace(temporary, final)
            except OSError:
                if at(run, step, belongs) is None:  # else another worker has saved the step meanwhile
                    raise
            atomic.flush_folder(final.parent)
    except OSError as error:
        raise from_os(error, f"cannot write the checkpoint of step {step}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def drop(folder: Path) -> None:
    """Remove a checkpoint, its manifest first, so that one half removed is none."""
    if not folder.is_symlink():
        (folder / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)


def _first_whole(folders: Iterable[Path], belongs: Belongs) -> Checkpoint | None:
    for folder in folders:
        try:
            candidate = _checked(folder)
            if belongs(candidate):
                return candidate
            raise Damaged("its step or its tokens are not the run's")
        except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
            logger.warning("checkpoint %s is damaged and not used: %s", folder, error)
    return None


def _checked(folder: Path) -> Checkpoint:
    """The checkpoint in `folder`, every byte compared with its manifest; raises where one differs."""
    manifest = read(folder / MANIFEST)
    if manifest is None:
        raise Damaged("it has no manifest")
    for name, expected in manifest["files"].items():
        _check_file(folder, name, expected)
    if manifest["step"] != int(folder.name):
        raise Damaged(f"its manifest is of step {manifest['step']}")
    return Checkpoint(manifest["step"], folder, manifest["note"])


def _check_file(folder: Path, name: str, expected: Mapping[str, Any]) -> None:
    inside = PurePosixPath(name)
    if inside.is_absolute() or ".." in inside.parts or not inside.parts:
        raise Damaged(f"its manifest names {name!r}, outside its folder")
    path = folder / inside
    if path.is_symlink() or not path.is_file():
        raise Damaged(f"{name!r} is missing")
    size = path.stat().st_size
    if size != expected["bytes"]:
        raise Damaged(f"{name!r} has {size} bytes instead of {expected['bytes']}")
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != expected["sha256"]:
            raise Damaged(f"the bytes of {name!r} have changed")


def _seal(folder: Path, step: int, note: Mapping[str, Any]) -> None:
    """Write the manifest, and put every file and folder on the disk."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_dir():
            atomic.flush_folder(path)
        else:
            with path.open("rb+") as file:
                os.fsync(file.fileno())
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            files[path.relative_to(folder).as_posix()] = {"bytes": path.stat().st_size, "sha256": digest}
    with (folder / MANIFEST).open("wb") as file:
        file.write(seal({"step": step, "files": files, "note": dict(note)}))
        atomic.flush(file)
    atomic.flush_folder(folder)
