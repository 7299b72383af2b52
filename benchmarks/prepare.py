"""Preparing text: its speed beside the tokenizer's own, and its memory as the corpus grows.

    python benchmarks/prepare.py                       speed on 32 MB, memory on 64 and 256 MB
    python benchmarks/prepare.py --sizes 1000 10000    memory on 1 and 10 GB

Speed is in MB of text a second, on the wall and per second of CPU time, which other work on the machine leaves alone:
`encode_batch` of the tokenizers library on texts in memory, against all of `scaling data prepare` but for learning the
tokenizer: reading, hashing, splitting, tokenizing, packing, writing. The text is the Python sources of this machine.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from scaling.data.codec import Codec
from scaling.data.corpus import Python
from scaling.data.prepare import prepare
from scaling.schema import build

SHARE = 1 << 20  # bytes of text that encode_batch is given at once, as in preparing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=32, help="text for the speed (%(default)s)")
    parser.add_argument(
        "--sizes", type=int, nargs="*", default=[64, 256], help="megabytes for the memory (%(default)s)"
    )
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--repeats", type=int, default=3, help="the fastest of so many is told (%(default)s)")
    arguments = parser.parse_args()
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        line = {"kind": "ByteBPE", "vocabulary": arguments.vocabulary, "sample": 8_000_000}
        texts = _texts(root, arguments.megabytes * 1_000_000)
        codec = Codec(build("tokenizer", line).fit(iter(texts[: len(texts) // 4])))
        codec.save(root / "tokenizer.json")
        _speed(root, texts, codec, arguments.repeats)
        for size in arguments.sizes:
            _memory(root, texts, size)


def _texts(root: Path, size: int) -> list[str]:
    return [document.text for document in Python(limit=size).snapshot(root).documents()]


def _speed(root: Path, texts: list[str], codec: Codec, repeats: int) -> None:
    size = sum(len(text.encode()) for text in texts) / 1e6

    def library() -> None:
        start = held = 0
        for stop, text in enumerate(texts, 1):
            held += len(text)
            if held >= SHARE or stop == len(texts):
                codec.tokenizer.encode_batch(texts[start:stop], add_special_tokens=False)
                start, held = stop, 0

    def ours(number: list[int]) -> None:
        number[0] += 1
        prepare(_line(root, {"kind": "Python", "limit": int(size * 1e6)}), root / f"speed{number[0]}")

    number = [0]
    ours(number)  # takes the snapshot
    walls, cpus = zip(_timed(library, repeats), _timed(lambda: ours(number), repeats))
    for name, wall, cpu in zip(("encode_batch", "prepare"), walls, cpus):
        print(f"{name:13} {size / wall:6.2f} MB/s  {size / cpu:6.2f} MB a CPU second")
    print(f"prepare reaches {walls[0] / walls[1]:.0%} of encode_batch on the wall, {cpus[0] / cpus[1]:.0%} by CPU time")


def _timed(work: Callable[[], None], repeats: int) -> tuple[float, float]:
    walls, cpus = [], []
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return min(walls), min(cpus)


def _memory(root: Path, texts: list[str], megabytes: int) -> None:
    """The most memory that a process of its own ever held while it prepared a file of so many megabytes."""
    file = root / f"{megabytes}.txt"
    written = copy = 0
    with file.open("w") as content:
        while written < megabytes * 1_000_000:
            for text in texts:
                written += content.write(f"# {copy}\n{text}\n\n")
            copy += 1
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    child = context.Process(target=_measured, args=(root, file, queue))
    child.start()
    peak, tokens, seconds = queue.get()
    child.join()
    size = file.stat().st_size
    print(f"{size / 1e9:6.3f} GB of text, {tokens / 1e6:8.1f}M tokens: {peak / 1e6:6.0f} MB resident, {seconds:5.0f} s")
    file.unlink()


def _measured(root: Path, file: Path, queue: multiprocessing.SimpleQueue) -> None:
    started = time.perf_counter()
    text = _line(root, {"kind": "Files", "files": str(file)})
    prepare(text, root / "memory")
    tokens = text.open("train", root / "memory").tokens
    queue.put((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, tokens, time.perf_counter() - started))


def _line(root: Path, corpus: dict[str, object]):
    tokenizer = {"kind": "File", "path": str(root / "tokenizer.json")}
    return build("data", {"kind": "Text", "corpus": corpus, "tokenizer": tokenizer})


if __name__ == "__main__":
    main()
