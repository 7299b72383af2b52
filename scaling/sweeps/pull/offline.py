"""Offline: runs that W&B's client wrote to `wandb/offline-run-*/run-ID.wandb` and that were never synced.

    file   := ":W&B" 0xBEE1 0x00, then blocks of 32 KiB
    record := CRC-32 (4 bytes) · length (2) · kind (1: whole, 2: first, 3: middle, 4: last) · content

This is LevelDB's log format with W&B's own checksum, over protocol buffers that the client brings along.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from scaling.errors import ScalingError
from scaling.sweeps.pull.history_check import Fetched, fetched, merged
from scaling.sweeps.pull.wandb_run import History, WandbRun

BLOCK, HEAD, START = 32 * 1024, 7, b":W&B"
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4


class Offline:
    """The runs in the files under a folder."""

    def __init__(self, folder: Path):
        self._read = {run.path: (run, history) for run, history in map(read, files(folder))}

    def listed(self) -> list[WandbRun]:
        return [run for run, _ in self._read.values()]

    def sweeps(self, names: Collection[str]) -> dict[str, Mapping[str, Any]]:
        """None: the files name their sweeps, and do not hold them."""
        return {}

    def histories(self, runs: list[WandbRun]) -> Iterator[tuple[WandbRun, Fetched]]:
        return ((run, fetched(self._read[run.path][1], run)) for run in runs)


def files(folder: Path) -> list[Path]:
    """Every offline run's file under a folder, or the one file that was named."""
    logs = [folder] if folder.is_file() else sorted(folder.glob("**/offline-run-*/run-*.wandb"))
    if not logs:
        raise ScalingError("there is no offline run of W&B here", file=folder, fix="name a folder above wandb/")
    return logs


def read(path: Path) -> tuple[WandbRun, History]:
    """The run in a file, and its history. A file that ends without an end, or is torn, is of a run that was killed."""
    from google.protobuf.message import DecodeError
    from wandb.proto import wandb_internal_pb2 as wandb

    document: dict[str, Any] = {"config": {}, "summary": {}, "name": path.stem, "sweep": None, "trunk": False}
    created, state, history = "", "crashed", History()
    for content in checked(path):
        try:
            record = wandb.Record.FromString(content)  # type: ignore[attr-defined]
        except DecodeError as error:
            raise Damaged(path, str(error)) from None
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run = record.run
            created = run.start_time.ToJsonString() if run.HasField("start_time") else created
            about = {"name": run.display_name or run.run_id, "sweep": run.sweep_id or None}
            document |= {**about, "trunk": run.job_type == "trunk"}
            _update(document["config"], run.config.update)
            _update(document["summary"], run.summary.update)
        elif kind == "config":
            _update(document["config"], record.config.update)
        elif kind == "summary":
            _update(document["summary"], record.summary.update)
        elif kind == "history":
            row = {"_step": record.history.step.num} if record.history.HasField("step") else {}
            merged(history, [{**row, **_plain(record.history.item)}])
        elif kind == "exit":
            state = "finished" if record.exit.exit_code == 0 else "failed"
    if "_step" in document["summary"]:
        document["last"] = document["summary"]["_step"]
    return WandbRun(path=str(path), state=state, created=created, lines=len(history), **document), history


class Damaged(ScalingError):
    """A file whose bytes are not those that were written."""

    def __init__(self, path: Path, what: str):
        super().__init__(f"the file is damaged: {what}", file=path, fix="move it away to pull the other runs")


def records(path: Path) -> Iterator[bytes]:
    """The whole records of a file, in order, up to where it was torn or damaged."""
    with suppress(Damaged):
        yield from checked(path)


def checked(path: Path) -> Iterator[bytes]:
    """The same; `Damaged` where the file does not merely end early: cut off, or with room that nothing came into."""
    content = path.read_bytes()
    if not START.startswith(content[: len(START)]):  # one that was killed at once has written nothing
        raise ScalingError("is no file of W&B's client", file=path)
    at, parts = HEAD, []
    while at + HEAD <= len(content):
        if BLOCK - at % BLOCK < HEAD:
            at += BLOCK - at % BLOCK  # a head does not span two blocks
            continue
        checksum, length, kind = struct.unpack_from("<IHB", content, at)
        body = content[at + HEAD : at + HEAD + length]
        if not any(content[at:]):
            return  # room that was made for what did not come
        fits = HEAD + length <= BLOCK - at % BLOCK and kind in (WHOLE, FIRST, MIDDLE, LAST)
        if fits and len(body) < length:
            return
        if not fits or zlib.crc32(body, zlib.crc32(bytes([kind]))) != checksum:
            raise Damaged(path, f"the record at byte {at} is not what was written")
        at += HEAD + length
        parts = [body] if kind in (WHOLE, FIRST) else [*parts, body]
        if kind in (WHOLE, LAST):
            yield b"".join(parts)


def _update(tree: dict[str, Any], items: Any) -> None:
    for item in items:
        inner = tree
        *above, last = item.nested_key or [item.key]
        for key in above:
            inner = inner.setdefault(key, {})
        inner[last] = json.loads(item.value_json)


def _plain(items: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    _update(plain, items)
    return plain
