"""Checkpoint: a folder of files that is whole or not there, and is never loaded when a bit of it has changed.

    checkpoints/<step>/manifest.json     step, and for each file its bytes and SHA-256; itself sealed
    checkpoints/<step>/...               whatever the trainer wrote

It is written under a temporary name in the same folder, every file and folder synced, and then renamed. So a crash at
any moment leaves the checkpoints before it as they were. Every byte is read again and compared before it is used.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from scaling import atomic
from scaling.atomic import flush_folder
from scaling.errors import from_os
from scaling.ledger.document import Damaged, read, seal
from scaling.ledger.exclusive import disk

MANIFEST = "manifest.json"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose every byte has been checked: its step, its folder, and the note written with it."""

    step: int
    folder: Path
    note: Mapping[str, Any] = field(default_factory=dict)


class Damage(Exception):
    """What is wrong with a checkpoint."""


@contextmanager
def writing(folder: Path, step: int, note: Mapping[str, Any]) -> Iterator[Path]:
    """A temporary folder to write a checkpoint's files into; it becomes the checkpoint when the block ends well."""
    final = folder / name(step)
    temporary = atomic.temporary(final)
    try:
        folder.mkdir(exist_ok=True)
        temporary.mkdir()
        yield temporary
        _publish(temporary, final, step, note)
    except OSError as error:
        raise from_os(error, f"cannot write the checkpoint of step {step}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def check(folder: Path) -> Checkpoint:
    """The checkpoint in `folder`, every byte compared with its manifest; raises `Damage` where one differs."""
    try:
        manifest = read(folder / MANIFEST)
        if manifest is None:
            raise Damage("it has no manifest")
        files = manifest["files"]
        for name, expected in files.items():
            _check_file(folder, name, expected)
        if manifest["step"] != int(folder.name):
            raise Damage(f"its manifest is of step {manifest['step']}")
        return Checkpoint(manifest["step"], folder, manifest["note"])
    except (Damaged, OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise Damage(str(error)) from error


def note(folder: Path) -> Mapping[str, Any]:
    """The note written with a checkpoint, whose files are not checked; none where it cannot be read."""
    try:
        return (read(folder / MANIFEST) or {}).get("note", {})
    except (Damaged, OSError):
        return {}


def name(step: int) -> str:
    """The name of the folder of a step's checkpoint."""
    return f"{step:012d}"


def latest(folders: Iterable[Path], belongs: Callable[[Checkpoint], bool] = lambda _: True) -> Checkpoint | None:
    """The latest whole checkpoint in `folders` that belongs where it is, the newest attempt's among equals; those
    passed over are warned of.
    """
    return _first_whole(sorted(_all(folders), key=lambda path: (int(path.name), path), reverse=True), belongs)


def at(folders: Iterable[Path], step: int) -> Checkpoint | None:
    """The whole checkpoint of exactly this step, None where there is none; damaged ones are warned of."""
    return _first_whole(path for path in _all(folders) if int(path.name) == step)


def final(folders: Collection[Path], result: Mapping[str, Any] | None) -> Checkpoint | None:
    """The checkpoint with the weights that a result is of: its best step's where it names one, else the latest whole
    one.
    """
    best = None if result is None else result.get("best_step")
    return latest(folders) if best is None else at(folders, best)


def steps(folder: Path) -> dict[int, Path]:
    """The checkpoints in one attempt's folder by step, not checked."""
    return {int(path.name): path for path in _all([folder])}


def prune(own: Path, older: Iterable[Path], keep: int, pinned: Collection[int]) -> None:
    """Drop what is no longer needed: all but the last `keep` of this attempt, and pinned steps wherever they are.

    Those of older attempts go once this one has `keep` of its own.
    """
    mine = steps(own)
    last = sorted(mine)[-keep:]
    for step, folder in mine.items():
        if step not in last and step not in pinned:
            drop(folder)
    if len(last) == keep:
        for folder in _all(older):
            step = int(folder.name)
            if step not in pinned or step in mine:
                drop(folder)


def drop(folder: Path) -> None:
    """Remove a checkpoint, its manifest first, so that one half removed is none."""
    if folder.is_symlink():
        return
    (folder / MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def _first_whole(folders: Iterable[Path], belongs: Callable[[Checkpoint], bool] = lambda _: True) -> Checkpoint | None:
    for folder in folders:
        try:
            candidate = check(folder)
            if belongs(candidate):
                return candidate
            raise Damage("its step or its tokens are not the run's")
        except Damage as damage:
            logger.warning("checkpoint %s is damaged and not used: %s", folder, damage)
    return None


def _publish(temporary: Path, final: Path, step: int, note: Mapping[str, Any]) -> None:
    files = {}
    for path in sorted(temporary.rglob("*")):
        if path.is_dir():
            flush_folder(path)
        else:
            name = path.relative_to(temporary).as_posix()
            files[name] = {"bytes": path.stat().st_size, "sha256": _digest_synced(path)}
    manifest = temporary / MANIFEST
    manifest.write_bytes(seal({"step": step, "files": files, "note": dict(note)}))
    _digest_synced(manifest)
    flush_folder(temporary)
    if final.exists():
        # Saved before at this very step. What a step holds is determined, so a whole one stays: taking it away first
        # would leave a moment with no checkpoint at all.
        if _is_whole(final):
            return
        drop(final)
    os.replace(temporary, final)
    flush_folder(final.parent)


def _is_whole(folder: Path) -> bool:
    try:
        check(folder)
    except Damage:
        return False
    return True


def _digest_synced(path: Path) -> str:
    with path.open("rb+") as file:
        os.fsync(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_file(folder: Path, name: str, expected: Mapping[str, Any]) -> None:
    inside = PurePosixPath(name)
    if inside.is_absolute() or ".." in inside.parts or not inside.parts:
        raise Damage(f"its manifest names {name!r}, outside its folder")
    path = folder / inside
    if path.is_symlink() or not path.is_file():
        raise Damage(f"{name!r} is missing")
    size = path.stat().st_size
    if size != expected["bytes"]:
        raise Damage(f"{name!r} has {size} bytes instead of {expected['bytes']}")
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != expected["sha256"]:
            raise Damage(f"the bytes of {name!r} have changed")


def _all(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        if folder.is_dir():
            with disk("cannot list checkpoints"):
                # A folder without a manifest is one that was being removed.
                yield from (path for path in folder.iterdir() if path.name.isdecimal() and (path / MANIFEST).exists())
