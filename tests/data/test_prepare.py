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

from scaling.base.errors import BAD_INPUT, DISK, ScalingError
from scaling.cli import main
from scaling.config.compose import load
from scaling.data import rows
from scaling.data.corpus import Files
from scaling.data.prepare import Call, in_turn, prepare
from scaling.data.store import Manifest, PackedSource, open_split
from scaling.data.text import Text

Line = Callable[..., Text]


def packed(folder: Path, split: str) -> PackedSource:
    source = open_split(folder, split)
    assert isinstance(source, PackedSource)
    return source


def documents(source: PackedSource) -> list[str]:
    """Every document of a split, decoded."""
    held = []
    for shard in source.manifest.splits[source.split]["text"]:
        file = source.folder / shard["name"]
        tokens, ends = np.fromfile(f"{file}.tokens", "<u2"), np.fromfile(f"{file}.ends", "<u8")
        for piece in np.split(tokens, ends[:-1].astype(int)):
            assert piece[-1] == source.specials["eos"]
            held.append(source.decode(piece[:-1]))
    return held


def test_the_corpus_comes_out_again_whole_and_split(text: Line, corpus: Path, root: Path) -> None:
    home = prepare(text(), root)
    before = {file: file.stat().st_mtime_ns for file in home.rglob("*")}
    assert prepare(text(), root) == home
    assert {file: file.stat().st_mtime_ns for file in home.rglob("*")} == before
    train, validation = (packed(home, split) for split in ("train", "validation"))
    held = documents(train), documents(validation)
    written = "\n\n".join(file.read_text() for file in sorted(corpus.iterdir())).split("\n\n")
    assert sorted(held[0] + held[1]) == sorted(written)
    assert not set(held[0]) & set(held[1])
    assert 10 < len(held[1]) < 90
    assert train.tokens + validation.tokens == sum(
        len(array) for each in (train, validation) for array in each.stream.arrays
    )
    assert len(train.manifest.splits["train"]["text"]) > 1
    counted = sum(len(document.encode()) for document in held[0])
    assert train.bytes_per_token == pytest.approx(counted / train.tokens)


def test_equal_documents_are_never_in_both_splits(
    text: Line, tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "PART", 500)  # so that copies are in several parts
    copies = [f"document {number % 40}" for number in range(400)]
    (tmp_path / "copies.txt").write_text("\n".join(copies))
    line = text(corpus={"kind": "Files", "files": str(tmp_path / "copies.txt"), "document": "line"}, validation=0.3)
    home = prepare(line, root)
    train, validation = (set(documents(packed(home, split))) for split in ("train", "validation"))
    assert train
    assert validation
    assert not train & validation


def test_what_is_published_for_validation_is_left_out_of_training(
    text: Line, tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rows, "PART", 100)
    (tmp_path / "train.txt").write_text("\n".join(f"line {number}" for number in range(100)))
    (tmp_path / "held.txt").write_text("\n".join(f"line {number}" for number in range(90, 120)))
    files = {"files": str(tmp_path / "train.txt"), "validation": str(tmp_path / "held.txt"), "document": "line"}
    home = prepare(text(corpus={"kind": "Files", **files}), root, backwards)
    assert "10 training documents were left out" in capsys.readouterr().err
    train, validation = (documents(packed(home, split)) for split in ("train", "validation"))
    assert sorted(train) == sorted(f"line {number}" for number in range(90))
    assert sorted(validation) == sorted(f"line {number}" for number in range(90, 120))


# --- parts ---


def backwards(jobs: Sequence[Call]) -> None:
    in_turn(jobs[::-1])


def test_the_order_of_jobs_and_the_size_of_parts_change_no_document(
    text: Line, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = prepare(text(), root / "in turn"), prepare(text(), root / "backwards", backwards)
    assert second.name == first.name
    assert files(second) == files(first)
    monkeypatch.setattr(rows, "PART", 1 << 28)
    one = prepare(text(), root / "one part")
    for split in ("train", "validation"):
        assert documents(packed(one, split)) == documents(packed(first, split))
        assert len(Manifest.read(first).splits[split]["text"]) > 4


def test_data_of_one_part_keep_their_fingerprints(text: Line, tmp_path: Path, root: Path) -> None:
    for name, numbers in (("train", range(100)), ("held", range(90, 120))):
        (tmp_path / name).write_text("\n".join(f"line {number}" for number in numbers))
    files = {"kind": "Files", "files": str(tmp_path / "train"), "document": "line"}
    for corpus, fingerprint in (
        (files, "2c511eed21b4a415"),
        ({**files, "validation": str(tmp_path / "held")}, "79213ed7341724f4"),
    ):
        assert prepare(text(corpus=corpus, tokenizer={"kind": "Byte"}), root).name == fingerprint


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


def test_a_limit_holds_for_all_parts_together(text: Line, corpus: Path, root: Path, monkeypatch) -> None:
    line = text(corpus={"kind": "Files", "files": str(corpus / "*.txt"), "limit": 20_000}, tokenizer={"kind": "Byte"})
    limited = prepare(line, root)
    assert 2 < len(Manifest.read(limited).splits["train"]["text"]) < 5
    monkeypatch.setattr(rows, "PART", 1 << 28)
    one = prepare(line, root.with_name("one part"))
    for split in ("train", "validation"):
        assert documents(packed(limited, split)) == documents(packed(one, split))
    total = sum(Manifest.read(one).count(split, "bytes") for split in ("train", "validation"))
    assert 20_000 <= total < 20_500


def test_jobs_of_this_machine_make_what_one_process_makes(
    text: Line, corpus: Path, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = prepare(text(), root.with_name("here"))
    monkeypatch.setenv("SCALING_DATA", str(root))
    tokenizer = "data.tokenizer={kind: ByteBPE, vocabulary: 300}"
    words = ["data", "prepare", "files", f"data.corpus.files={corpus}/*.txt", tokenizer, "data.validation=0.1"]
    assert main([*words, "--workers", "2", "--json"]) == 0
    assert Path(json.loads(capsys.readouterr().out)["folder"]).name == home.name


# --- stopped on the way ---


# Children start from a server that has imported everything, so that there is work to kill from their first millisecond.
server = multiprocessing.get_context("forkserver")
server.set_forkserver_preload(["datasets", "pandas", "scaling.data.prepare", "scaling.data.tokenizer"])


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


def files(home: Path) -> dict[str, bytes]:
    kept = (file for file in home.rglob("*") if file.is_file() and file.name not in ("trusted.json", "plan.json"))
    return {str(file.relative_to(home)): file.read_bytes() for file in kept}


def test_killed_at_random_moments_it_ends_as_if_undisturbed(
    text: Line, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = text()
    prepare(line, tmp_path / "imports")  # which would count among the time of the first
    monkeypatch.setattr(rows, "PART", 1500)
    started = time.monotonic()
    undisturbed = prepare(line, tmp_path / "undisturbed")
    span = time.monotonic() - started
    kills, draw = 3, random.Random(3)
    while kills:
        if killed(line, root, after=draw.uniform(0, 1.5 * span)):
            kills -= 1
        else:
            shutil.rmtree(root)
    home = prepare(line, root)
    assert home.name == undisturbed.name
    assert files(home) == files(undisturbed)


def mounted(folder: Path) -> bool:
    folder.mkdir()
    if os.geteuid() != 0:
        return False
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    return subprocess.run(mount, capture_output=True, check=False).returncode == 0


def test_a_full_disk_gives_74_and_room_lets_it_resume(corpus: Path, root: Path, tmp_path: Path) -> None:
    small = tmp_path / "small"
    mount = mounted(small)
    words = [f"data.corpus.files={corpus}/*.txt", "data.tokenizer={kind: Byte}", "data.validation=0.1"]
    script = (
        "import sys; from scaling.cli import main; from scaling.data import rows; rows.PART = 8000; sys.exit(main())"
    )
    limit = None if mount else lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
    try:
        stopped = subprocess.run(
            [sys.executable, "-c", script, "data", "prepare", "files", *words, "--workers", "1"],
            env={**os.environ, "SCALING_DATA": str(small)},
            capture_output=True,
            text=True,
            preexec_fn=limit,
            check=False,
        )
        assert stopped.returncode == DISK, stopped.stderr
        (said,) = [line for line in stopped.stderr.splitlines() if line.startswith("scaling: ")]  # beside the progress
        assert "free some space" in said
        if mount:
            assert list(small.glob("preparing/*/parts/*.json"))
            assert not list(small.glob("preparing/*/train/.*"))
            subprocess.run(["mount", "-o", "remount,size=64m", str(small)], check=True)
        line = load("decoder", ["data=files", *words]).build("data")
        assert files(prepare(line, small)) == files(prepare(line, root))
    finally:
        if mount:
            subprocess.run(["umount", str(small)], check=True)


# --- bad input ---


def refused(line: Text, root: Path) -> str:
    with pytest.raises(ScalingError) as caught:
        prepare(line, root)
    assert caught.value.code == BAD_INPUT
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_data_that_change_while_they_are_prepared_start_anew(text: Line, corpus: Path, root: Path) -> None:
    line = text()
    work = root / "preparing" / line.key
    prepare(line, root).rename(work)  # as if it had been killed just before the end
    for leftover in ("manifest.json", "trusted.json"):
        (work / leftover).unlink()
    (corpus / "0.txt").write_text("something else\n\naltogether\n\n" * 20)
    home = prepare(line, root)
    assert home.name == prepare(line, root.with_name("undisturbed")).name


def test_changed_data_under_an_old_fingerprint(text: Line, corpus: Path, root: Path) -> None:
    old = prepare(text(), root)
    content = (corpus / "1.txt").read_text()
    (corpus / "1.txt").write_text(content.replace("loss", "gain"))
    with pytest.raises(ScalingError, match=r"1\.txt: it has changed since it was prepared"):
        text().open("train", root)
    new = prepare(text(), root)
    assert new != old
    assert text().open("train", root).fingerprint.startswith(new.name)
    (corpus / "1.txt").write_text(content)  # touched, but what it was
    assert prepare(text(), root) == old
    assert text().open("train", root).fingerprint.startswith(old.name)


def test_a_change_concerns_only_the_data_line_that_names_the_file(
    text: Line, corpus: Path, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "PART", 1 << 28)
    documents = [part for file in sorted(corpus.iterdir()) for part in file.read_text().split("\n\n")]
    lines = tmp_path / "a.jsonl"
    lines.write_text("".join(json.dumps({"text": document}) + "\n" for document in documents))
    plain, table = text(), text(corpus={"kind": "Files", "files": str(lines)})
    home = prepare(plain, root)
    assert prepare(table, root) == home, "equal text has one fingerprint"
    content = (corpus / "0.txt").read_text()
    (corpus / "0.txt").write_text(content.replace("loss", "gain"))
    table.open("train", root)
    assert prepare(table, root) == home
    with pytest.raises(ScalingError, match=r"0\.txt: it has changed"):
        plain.open("train", root)
    assert prepare(plain, root) != home
    assert prepare(table, root) == home
    (corpus / "0.txt").write_text(content)
    assert prepare(plain, root) == home
    lines.write_text(lines.read_text().replace("loss", "gain"))
    plain.open("train", root)
    with pytest.raises(ScalingError, match=r"a\.jsonl: it has changed"):
        table.open("train", root)
    shutil.rmtree(home)
    assert prepare(plain, root) == home, "prepared first, or alone, or last"


def test_mixed_tokenizers(text: Line, corpus: Path, root: Path, tmp_path: Path) -> None:
    home = prepare(text(), root)
    published = tmp_path / "tokenizer.json"
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


def test_two_at_once_wait_for_one_another(text: Line, root: Path) -> None:
    pair = [server.Process(target=prepare, args=(text(), root)) for _ in range(2)]
    for child in pair:
        child.start()
    for child in pair:
        child.join()
    assert [child.exitcode for child in pair] == [0, 0]
    assert text().entry(root) is not None
    assert not [folder for folder in (root / "preparing").iterdir() if folder.is_dir()]
