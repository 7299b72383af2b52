"""Checkpoint: a folder of files that is whole or not there, and is never loaded when a bit of it has changed.

    checkpoints/<step>/manifest.json     step, note, and the SHA-256 of each file; itself sealed
    checkpoints/<step>/...               whatever the trainer wrote

It is written under a temporary name in the same folder, every file and folder synced, and then renamed. So a crash at
any moment leaves the checkpoints before it as they were. Every byte is read again and compared before it is used.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scaling.base import atomic
from scaling.base.errors import disk, from_os
from scaling.ledger.document import Damaged, read, read_valid, seal

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
    with disk("cannot list checkpoints"):
        # A folder without a manifest is one that was being removed.
        there = [path for path in (run / FOLDER).glob("*") if path.name.isdecimal() and (path / MANIFEST).exists()]
    return {int(path.name): path for path in sorted(there, reverse=True)}


def find(run: Path, step: int | None = None, belongs: Belongs = lambda _: True) -> Checkpoint | None:
    """The whole checkpoint of a step of a run, or the latest that belongs to the run; damaged ones are warned of."""
    for number, folder in steps(run).items():
        if step in (None, number):
            try:
                candidate = _checked(folder)
                if belongs(candidate):
                    return candidate
                raise Damaged("its step or its tokens are not the run's")
            except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
                logger.warning("checkpoint %s is damaged and not used: %s", folder, error)
    return None


def final(run: Path, result: Mapping[str, Any] | None) -> Checkpoint | None:
    """The checkpoint with the weights of a result: of its best step where it names one, else the latest whole one."""
    return find(run, (result or {}).get("best_step"))


def note(folder: Path) -> Mapping[str, Any]:
    """The note written with a checkpoint, whose files are not checked; none where it cannot be read."""
    return (read_valid(folder / MANIFEST) or {}).get("note", {})


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
        (temporary / MANIFEST).write_bytes(seal({"step": step, "files": _digests(temporary), "note": dict(note)}))
        for path in (*temporary.rglob("*"), temporary):
            atomic.flush_folder(path)
        if find(run, step, belongs) is None:
            drop(final)
            try:
                os.replace(temporary, final)
            except OSError:
                if find(run, step, belongs) is None:  # else another worker has saved the step meanwhile
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


def _checked(folder: Path) -> Checkpoint:
    """The checkpoint in `folder`, every byte compared with its manifest; raises where one differs."""
    manifest, digests = read(folder / MANIFEST, step=int(folder.name)) or {}, _digests(folder)
    for name, digest in manifest["files"].items():
        if digests.get(name) != digest:
            raise Damaged(f"{name!r} has changed" if name in digests else f"{name!r} is missing")
    return Checkpoint(manifest["step"], folder, manifest["note"])


def _digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file in a folder but the manifest, by name; no link is followed."""
    digests = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not path.is_symlink() and name != MANIFEST:
            with path.open("rb") as file:
                digests[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests
