"""Preparing: what comes out is the corpus, nothing is in both splits, and kills and full disks are survived."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from scaling.base.errors import DISK, ScalingError
from scaling.config.compose import load
from scaling.data import rows
from scaling.data.corpus import Files
from scaling.data.prepare import Call, in_turn, prepare
from scaling.data.store import Manifest, PackedSource, open_split
from scaling.data.text import Text
from tests.data.conftest import prepared

Line = Callable[..., Text]


def documents(home: Path, split: str) -> list[str]:
    """Every document of a split, decoded."""
    source, held = open_split(home, split), list[str]()
    assert isinstance(source, PackedSource)
    for shard in source.manifest.splits[split]["text"]:
        tokens, ends = (
            np.fromfile(home / f"{shard['name']}.{kind}", f"<u{n}") for kind, n in (("tokens", 2), ("ends", 8))
        )
        for piece in np.split(tokens, ends[:-1].astype(int)):
            assert piece[-1] == source.specials["eos"]
            held.append(source.decode(piece[:-1]))
    return held


def both(home: Path) -> list[list[str]]:
    return [documents(home, split) for split in ("train", "validation")]


def files(home: Path) -> dict[str, bytes]:
    kept = (file for file in home.rglob("*") if file.is_file() and file.name not in ("trusted.json", "plan.json"))
    return {str(file.relative_to(home)): file.read_bytes() for file in kept}


def backwards(jobs: Sequence[Call]) -> None:
    in_turn(jobs[::-1])


def test_the_corpus_comes_out_again_whatever_its_parts_and_the_order_of_jobs(
    text: Line, corpus: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = prepare(text(), root)
    before = {file: file.stat().st_mtime_ns for file in home.rglob("*")}
    assert prepare(text(), root) == home
    assert {file: file.stat().st_mtime_ns for file in home.rglob("*")} == before
    train, validation = both(home)
    written = "\n\n".join(file.read_text() for file in sorted(corpus.iterdir())).split("\n\n")
    assert sorted(train + validation) == sorted(written)
    assert 10 < len(validation) < 90
    source = open_split(home, "train")
    assert source.bytes_per_token == pytest.approx(sum(len(each.encode()) for each in train) / source.tokens)
    other = prepare(text(), root / "backwards", backwards)
    assert (other.name, files(other)) == (home.name, files(home))
    monkeypatch.setattr(rows, "PART", 1 << 28)
    assert both(prepare(text(), root / "one part")) == [train, validation]
    assert len(Manifest.read(home).splits["validation"]["text"]) > 4


def test_no_document_is_in_both_splits(
    text: Line, tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rows, "PART", 100)  # so that copies are in several parts
    (tmp_path / "copies.txt").write_text("\n".join(f"document {number % 40}" for number in range(400)))
    copies = {"kind": "Files", "files": str(tmp_path / "copies.txt"), "document": "line"}
    train, validation = both(prepare(text(corpus=copies, validation=0.3), root))
    assert train
    assert validation
    assert not set(train) & set(validation)
    for name, numbers in (("train", range(100)), ("held", range(90, 120))):
        (tmp_path / name).write_text("\n".join(f"line {number}" for number in numbers))
    published = {**copies, "files": str(tmp_path / "train"), "validation": str(tmp_path / "held")}
    train, validation = both(prepare(text(corpus=published), root, backwards))
    assert "10 training documents were left out" in capsys.readouterr().err
    assert sorted(train) == sorted(f"line {number}" for number in range(90))
    assert sorted(validation) == sorted(f"line {number}" for number in range(90, 120))
    monkeypatch.setattr(rows, "PART", 1 << 28)  # data of one part keep their fingerprints
    del published["validation"]
    assert prepare(text(corpus=published, tokenizer={"kind": "Byte"}), root).name == "2c511eed21b4a415"
    published["validation"] = str(tmp_path / "held")
    assert prepare(text(corpus=published, tokenizer={"kind": "Byte"}), root).name == "79213ed7341724f4"


def test_a_limit_holds_for_all_parts_together(text: Line, corpus: Path, root: Path, monkeypatch) -> None:
    files = {"kind": "Files", "files": str(corpus / "*.txt"), "limit": 20_000}
    limited = prepare(text(corpus=files, tokenizer={"kind": "Byte"}), root)
    assert 2 < len(Manifest.read(limited).splits["train"]["text"]) < 5
    monkeypatch.setattr(rows, "PART", 1 << 28)
    one = prepare(text(corpus=files, tokenizer={"kind": "Byte"}), root.with_name("one part"))
    assert both(limited) == both(one)
    assert 20_000 <= sum(Manifest.read(one).count(split, "bytes") for split in ("train", "validation")) < 20_500


def test_jobs_of_this_machine_make_what_one_process_makes(
    text: Line, corpus: Path, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = prepare(text(), root.with_name("here"))
    monkeypatch.setenv("SCALING_DATA", str(root))
    words = [f"data.corpus.files={corpus}/*.txt", "data.tokenizer={kind: ByteBPE, vocabulary: 300}"]
    made = prepared(capsys, "files", *words, "data.validation=0.1", "--workers", "2")
    assert Path(made["folder"]).name == home.name


# --- stopped on the way ---


def test_no_part_that_is_done_is_read_again(text: Line, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def some(jobs: Sequence[Call]) -> None:
        in_turn(jobs[::2])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(text(), root, some)
    read, hashed = [], []
    monkeypatch.setattr(Files, "read", lambda self, part, own=Files.read: read.append(part) or own(self, part))
    monkeypatch.setattr(rows, "sha256", lambda file, own=rows.sha256: hashed.append(file) or own(file))
    home = prepare(text(), root)
    assert len(read) == len(json.loads((home / "plan.json").read_text())["parts"]) // 2
    assert not hashed
    assert files(home) == files(prepare(text(), root.with_name("undisturbed")))


# Children start from a server that has imported everything, so that there is work to kill from their first millisecond.
server = multiprocessing.get_context("forkserver")
server.set_forkserver_preload(["scaling.data.prepare", "scaling.data.tokenizer", "scaling.data"])


def small_parts(line: Text, root: Path) -> None:
    rows.PART = 1500  # some thirty parts
    prepare(line, root)


def killed(line: Text, root: Path, after: float) -> bool:
    """Whether a process that prepares was killed, so many seconds after it began to, before it was done."""
    child = server.Process(target=small_parts, args=(line, root))
    child.start()
    child.join(after)
    child.kill()
    child.join()
    assert child.exitcode in (0, -signal.SIGKILL)
    return child.exitcode != 0


def test_killed_at_random_moments_it_ends_as_if_undisturbed(
    text: Line, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(text(), tmp_path / "imports")  # which would count among the time of the first
    monkeypatch.setattr(rows, "PART", 1500)
    started = time.monotonic()
    undisturbed = prepare(text(), tmp_path / "undisturbed")
    span, kills, draw = time.monotonic() - started, 3, random.Random(3)
    while kills:
        if killed(text(), root, after=draw.uniform(0, 1.5 * span)):
            kills -= 1
        else:
            shutil.rmtree(root)
    home = prepare(text(), root)
    assert (home.name, files(home)) == (undisturbed.name, files(undisturbed))


def test_two_at_once_wait_for_one_another(text: Line, root: Path) -> None:
    pair = [server.Process(target=prepare, args=(text(), root)) for _ in range(2)]
    for child in pair:
        child.start()
    for child in pair:
        child.join()
    assert [child.exitcode for child in pair] == [0, 0]
    assert text().entry(root) is not None
    assert not [folder for folder in (root / "preparing").iterdir() if folder.is_dir()]


def test_a_full_disk_gives_74_and_room_lets_it_resume(corpus: Path, root: Path, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(small)]
    mounted = os.geteuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0
    words = [f"data.corpus.files={corpus}/*.txt", "data.tokenizer={kind: Byte}", "data.validation=0.1"]
    script = (
        "import sys; from scaling.cli import main; from scaling.data import rows; rows.PART = 8000; sys.exit(main())"
    )
    try:
        stopped = subprocess.run(
            [sys.executable, "-c", script, "data", "prepare", "files", *words, "--workers", "1"],
            env={**os.environ, "SCALING_DATA": str(small)},
            capture_output=True,
            text=True,
            preexec_fn=None if mounted else lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000)),
            check=False,
        )
        assert stopped.returncode == DISK, stopped.stderr
        (said,) = [line for line in stopped.stderr.splitlines() if line.startswith("scaling: ")]  # beside the progress
        assert "free some space" in said
        if mounted:
            assert list(small.glob("preparing/*/parts/*.json"))
            assert not list(small.glob("preparing/*/train/.*"))
            subprocess.run(["mount", "-o", "remount,size=64m", str(small)], check=True)
        line = load("decoder", ["data=files", *words]).build("data")
        assert files(prepare(line, small)) == files(prepare(line, root))
    finally:
        if mounted:
            subprocess.run(["umount", str(small)], check=True)


# --- data that change ---


def test_data_that_change_while_they_are_prepared_start_anew(text: Line, corpus: Path, root: Path) -> None:
    work = root / "preparing" / text().key
    prepare(text(), root).rename(work)  # as if it had been killed just before the end
    for leftover in ("manifest.json", "trusted.json"):
        (work / leftover).unlink()
    (corpus / "0.txt").write_text("something else\n\naltogether\n\n" * 20)
    assert prepare(text(), root).name == prepare(text(), root.with_name("undisturbed")).name


def test_a_change_concerns_only_the_data_line_that_names_the_file(
    text: Line, corpus: Path, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "PART", 1 << 28)
    lines, changed = tmp_path / "a.jsonl", corpus / "0.txt"
    documents = [part for file in sorted(corpus.iterdir()) for part in file.read_text().split("\n\n")]
    lines.write_text("".join(json.dumps({"text": document}) + "\n" for document in documents))
    plain, table = text(), text(corpus={"kind": "Files", "files": str(lines)})
    home = prepare(plain, root)
    assert prepare(table, root) == home, "equal text has one fingerprint"
    content = changed.read_text()
    changed.write_text(content.replace("loss", "gain"))
    table.open("train", root)
    with pytest.raises(ScalingError, match=r"0\.txt: it has changed since it was prepared"):
        plain.open("train", root)
    assert prepare(table, root) == home
    new = prepare(plain, root)
    assert new != home
    assert plain.open("train", root).fingerprint.startswith(new.name)
    changed.write_text(content)  # touched, but what it was
    assert prepare(plain, root) == home
    shutil.rmtree(home)
    assert prepare(plain, root) == home, "prepared first, or alone, or last"


def test_mixed_tokenizers(text: Line, root: Path, tmp_path: Path) -> None:
    home, published = prepare(text(), root), tmp_path / "tokenizer.json"
    shutil.copy(home / "tokenizer.json", published)
    line = text(tokenizer={"kind": "File", "path": str(published)})
    prepare(line, root)
    line.open("train", root)
    other = prepare(text(tokenizer={"kind": "ByteBPE", "vocabulary": 290}), root)
    shutil.copy(other / "tokenizer.json", published)
    with pytest.raises(ScalingError, match="mixed tokenizers"):
        line.open("train", root)
    assert prepare(line, root) == other
    assert line.open("train", root).vocabulary == 290
    shutil.copy(other / "tokenizer.json", home / "tokenizer.json")
    with pytest.raises(ScalingError, match=r"tokenizer\.json: it was altered"):
        text().open("train", root)
