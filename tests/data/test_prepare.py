"""Preparing: what comes out is the corpus, in two splits, whatever is killed or full, and no altered byte is read."""

import json
import multiprocessing
import os
import random
import shutil
import signal
import time
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from scaling.base.errors import DISK, ScalingError
from scaling.data import rows, store
from scaling.data.corpus import Files
from scaling.data.store import open_split
from scaling.data.text import ShardWriter, in_turn, prepare
from tests.command_line import refuses
from tests.data.conftest import jsonl, line, prepared
from tests.disk import fill

ONE_PART, BYTE = 1 << 28, {"kind": "Byte"}


def documents(home):
    for split in ("train", "validation"):
        source = open_split(home, split)
        yield [source.decode(tokens[:-1]) for _, tokens in source.documents()]


def files(home):
    kept = (file for file in home.rglob("*") if file.is_file() and file.name not in ("trusted.json", "plan.json"))
    return {str(file.relative_to(home)): file.read_bytes() for file in kept}


def backwards(jobs):
    in_turn(jobs[::-1])


def test_documents_and_windows_are_those_of_the_corpus_whatever_the_jobs(text, corpus, tmp_path, monkeypatch, capsys):
    home = prepare(text(), tmp_path / "data")
    train, validation = documents(home)
    written = "\n\n".join(file.read_text() for file in sorted(corpus.iterdir())).split("\n\n")
    assert sorted(train + validation) == sorted(written)
    assert 10 < len(validation) < 90
    source = open_split(home, "train")
    assert source.bytes_per_token == pytest.approx(sum(len(each.encode()) for each in train) / source.tokens)
    stream = np.concatenate([tokens for _, tokens in source.documents()])
    assert (source.tokens, source.windows(7)) == (len(stream), len(stream) // 7)
    read = source.read(np.arange(len(stream) // 7)[::-1], 7).tokens[::-1]
    np.testing.assert_array_equal(read.ravel(), stream[: read.size])
    other = prepare(text(), tmp_path / "backwards", backwards)
    assert (other.name, files(other)) == (home.name, files(home))
    monkeypatch.setenv("SCALING_DATA", str(tmp_path / "workers"))
    words = [f"data.corpus.files={corpus}/*.txt", "data.tokenizer={kind: ByteBPE, vocabulary: 300}"]
    made = prepared(capsys, "files", *words, "data.validation=0.1", "--workers", "2")
    assert files(Path(made["folder"])) == files(home)


def test_no_document_is_in_both_splits_and_fingerprints_stay(text, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(rows, "PART", 100)  # so that copies are in several parts
    (tmp_path / "copies.txt").write_text("\n".join(f"document {number % 40}" for number in range(400)))
    copies = {"kind": "Files", "files": str(tmp_path / "copies.txt"), "document": "line"}
    train, validation = documents(prepare(text(corpus=copies, validation=0.3), tmp_path / "data"))
    assert len({*train}) + len({*validation}) == len({*train, *validation}) == 40
    for name, numbers in (("train", range(100)), ("held", range(90, 120))):
        (tmp_path / name).write_text("\n".join(f"line {number}" for number in numbers))
    plain = {**copies, "files": str(tmp_path / "train")}
    published = {**plain, "validation": str(tmp_path / "held")}
    train, validation = documents(prepare(text(corpus=published), tmp_path / "data", backwards))
    assert "10 training documents were left out" in capsys.readouterr().err
    assert sorted(train) == sorted(f"line {number}" for number in range(90))
    assert sorted(validation) == sorted(f"line {number}" for number in range(90, 120))
    monkeypatch.setattr(rows, "PART", ONE_PART)
    for own, fingerprint in ((plain, "2c511eed21b4a415"), (published, "79213ed7341724f4")):
        assert prepare(text(corpus=own, tokenizer=BYTE), tmp_path / "data").name == fingerprint


def test_a_limit_holds_for_all_parts_together(text, corpus, tmp_path, monkeypatch):
    limited = text(corpus={"kind": "Files", "files": str(corpus / "*.txt"), "limit": 20_000}, tokenizer=BYTE)
    home = prepare(limited, tmp_path / "data")
    assert 2 < len(store.read_manifest(home)["splits"]["train"]["text"]) < 5
    monkeypatch.setattr(rows, "PART", ONE_PART)
    one = prepare(limited, tmp_path / "one part")
    assert [*documents(home)] == [*documents(one)]
    assert 20_000 <= sum(open_split(one, split).counts()["bytes"] for split in ("train", "validation")) < 20_500


def test_no_part_that_is_done_is_read_again_and_shards_are_on_the_disk_before_their_record(text, tmp_path, monkeypatch):
    def some(jobs):
        in_turn(jobs[::2])
        raise KeyboardInterrupt

    flushed, read, hashed = [], [], []

    def flush(file, own=os.fsync):
        name = Path(f"/proc/self/fd/{file}").readlink().name
        flushed.append(name.removeprefix(".writing-").rpartition("-")[0] if name.startswith(".writing-") else name)
        own(file)

    monkeypatch.setattr(os, "fsync", flush)
    with pytest.raises(KeyboardInterrupt):
        prepare(text(), tmp_path / "data", some)
    monkeypatch.setattr(Files, "read", lambda self, part, own=Files.read: read.append(part) or own(self, part))
    monkeypatch.setattr(rows, "sha256", lambda file, own=rows.sha256: hashed.append(file) or own(file))
    home = prepare(text(), tmp_path / "data")
    assert prepare(text(), tmp_path / "data") == home
    assert len(read) == len(json.loads((home / "plan.json").read_text())["parts"]) // 2
    assert {file.name for file in hashed} == {"tokenizer.json"}
    shards = [file.name for file in home.rglob("*.tokens")]
    for number in ("00000", "00003"):
        before = flushed[: flushed.index(f"{number}.json")]
        counts = [before.count(f"{number}.text.{ending}") for ending in ("tokens", "ends")]
        assert counts == [shards.count(f"{number}.text.tokens")] * 2
    assert files(home) == files(prepare(text(), tmp_path / "undisturbed"))


# Children start from a server that has imported everything, so that there is work to kill from their first millisecond.
server = multiprocessing.get_context("forkserver")
server.set_forkserver_preload(["scaling.data"])


def small_parts(line, folder):
    rows.PART = 1500  # some thirty parts
    prepare(line, folder)


def test_killed_at_random_moments_it_ends_as_if_undisturbed(text, tmp_path, monkeypatch):
    prepare(text(), tmp_path / "imports")  # which would count among the time of the first
    monkeypatch.setattr(rows, "PART", 1500)
    started = time.monotonic()
    undisturbed = prepare(text(), tmp_path / "undisturbed")
    span, kills, draw = time.monotonic() - started, 3, random.Random(3)
    while kills:
        child = server.Process(target=small_parts, args=(text(), tmp_path / "data"))
        child.start()
        child.join(draw.uniform(0, 1.5 * span))
        child.kill()
        child.join()
        assert child.exitcode in (0, -signal.SIGKILL)
        kills -= child.exitcode != 0
        if child.exitcode == 0:  # it was done before
            shutil.rmtree(tmp_path / "data")
    home = prepare(text(), tmp_path / "data")
    assert (home.name, files(home)) == (undisturbed.name, files(undisturbed))


def test_a_worker_that_outlives_its_command_harms_no_part_that_is_done(text, tmp_path, monkeypatch):
    def again(jobs):
        in_turn(jobs)
        with monkeypatch.context() as patched:  # another process is killed as it writes them
            patched.setattr(ShardWriter, "add", Mock(side_effect=KeyboardInterrupt))
            for job in jobs:
                with pytest.raises(KeyboardInterrupt):
                    in_turn([job])

    home = prepare(text(), tmp_path / "data", again)
    assert files(home) == files(prepare(text(), tmp_path / "undisturbed"))


def test_two_at_once_wait_for_one_another(text, tmp_path):
    pair = [server.Process(target=prepare, args=(text(), tmp_path / "data")) for _ in range(2)]
    for child in pair:
        child.start()
    for child in pair:
        child.join()
    assert [child.exitcode for child in pair] == [0, 0]
    assert text().entry(tmp_path / "data") is not None
    assert not [folder for folder in (tmp_path / "data" / "preparing").iterdir() if folder.is_dir()]


def test_a_full_disk_gives_74_and_room_lets_it_resume(text, tmp_path, small_disk):
    fill(small_disk, leave=120_000)
    with pytest.raises(ScalingError, match="free some space") as stopped:
        prepare(text(tokenizer=BYTE), small_disk)
    assert stopped.value.code == DISK
    assert list(small_disk.glob("preparing/*/parts/*.json"))
    assert not list(small_disk.glob("preparing/*/train/.*"))
    (small_disk / "filler").unlink()
    assert files(prepare(text(tokenizer=BYTE), small_disk)) == files(prepare(text(tokenizer=BYTE), tmp_path / "data"))


def test_pairs_are_read_as_they_were_written_and_long_ones_are_cut(tmp_path):
    sides = [[f"how much is {n} and one" for n in range(99)], ["one " * (n % 7) + str(n + 1) for n in range(99)]]
    for name, texts in zip(("source", "text"), sides):
        (tmp_path / name).write_text("\n".join(texts))
    corpus = {"kind": "Parallel", "source": str(tmp_path / "source"), "target": str(tmp_path / "text")}
    source = open_split(prepare(line(tmp_path, corpus=corpus), tmp_path / "data"), "train")
    count, eos, pad = source.windows(64) or 0, source.specials["eos"], source.specials["pad"]
    assert 60 < count < 99
    read, cut = source.read(np.arange(count), 64), source.read(np.arange(count), 5)
    for row, lengths in enumerate(source.lengths.tolist()):
        numbered, texts = (read.source_documents[row], read.documents[row]), []
        for tokens, documents, length in zip((read.source[row], read.tokens[row]), numbered, lengths):
            assert documents.tolist() == [1] * length + [0] * (64 - length)
            assert tokens[length - 1 :].tolist() == [eos] + [pad] * (64 - length)
            texts.append(source.decode(tokens[: length - 1]))
        assert tuple(texts) in {*zip(*sides)}
    assert cut.source.tolist() == [[*whole[:4], eos] for whole in read.source.tolist()]


def test_unfinished_work_of_other_data_or_of_another_version_is_begun_anew(text, corpus, tmp_path):
    home, work = prepare(text(), tmp_path / "undisturbed"), tmp_path / "data" / "preparing" / text().key
    (work / "parts").mkdir(parents=True)
    (work / "plan.json").write_text('{"stamp": {}, "parts": [{"file": 0}], "limit": null}')
    for leftover in ("manifest.json", "parts/00000.json"):
        (work / leftover).write_text('{"shards": {}}')
    assert prepare(text(), tmp_path / "data").name == home.name
    (tmp_path / "data" / home.name).rename(work)  # as if it had been killed just before the end
    for leftover in ("manifest.json", "trusted.json"):
        (work / leftover).unlink()
    (corpus / "0.txt").write_text("something else\n\naltogether\n\n" * 20)
    changed = prepare(text(), tmp_path / "data")
    assert changed.name == prepare(text(), tmp_path / "undisturbed").name != home.name
    shutil.copytree(changed, work)
    (work / "manifest.json").unlink()
    (work / "parts").mkdir()
    (work / "parts" / "00000.json").write_text("")  # a disk has lost its content
    shutil.rmtree(changed)
    assert prepare(text(), tmp_path / "data") == changed
    store.seal(changed, {**store.sealed(changed), "format": store.FORMAT + 1})
    refuses(r"it was prepared by another version.*prepare` again", text().open, "train", changed.parent)


def test_a_change_concerns_only_the_data_line_that_names_the_file(text, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "PART", ONE_PART)
    root, plain, changed = tmp_path / "data", text(), corpus / "0.txt"
    documents = [part for file in sorted(corpus.iterdir()) for part in file.read_text().split("\n\n")]
    table = text(corpus={"kind": "Files", "files": jsonl(tmp_path / "a.jsonl", [{"text": one} for one in documents])})
    home = prepare(plain, root)
    assert prepare(table, root) == home, "equal text has one fingerprint"
    content = changed.read_text()
    changed.write_text(content.replace("loss", "gain"))
    table.open("train", root)
    refuses(r"0\.txt: it has changed since it was prepared", plain.open, "train", root)
    new = prepare(plain, root)
    assert new != home
    assert plain.open("train", root).fingerprint.startswith(new.name)
    changed.write_text(content)  # touched, but what it was
    assert prepare(plain, root) == home


def test_mixed_tokenizers(text, tmp_path):
    root, published = tmp_path / "data", tmp_path / "tokenizer.json"
    homes = [prepare(text(tokenizer={"kind": "ByteBPE", "vocabulary": size}), root) for size in (300, 290)]
    shutil.copy(homes[0] / "tokenizer.json", published)
    line = text(tokenizer={"kind": "File", "path": str(published)})
    assert prepare(line, root) == homes[0]
    line.open("train", root)
    shutil.copy(homes[1] / "tokenizer.json", published)
    refuses("mixed tokenizers", line.open, "train", root)
    assert prepare(line, root) == homes[1]
    assert line.open("train", root).vocabulary == 290


def test_a_harmed_file_or_manifest_is_found(text, tmp_path, monkeypatch):
    root = tmp_path / "data"
    home = prepare(text(), root)
    source, shard = open_split(home, "train"), store.read_manifest(home)["splits"]["train"]["text"][1]
    for name in ("tokenizer.json", "train/00002.text.ends", "train/00002.text.tokens"):
        file, before = home / name, (home / name).read_bytes()
        status, middle = file.stat(), len(before) // 2
        altered = before[:middle] + bytes([before[middle] ^ 1]) + before[middle + 1 :]
        for content in (b"", before[:-2], altered):
            file.write_bytes(content)
            if not content:
                file.unlink()
            refuses(rf"{name}: (it was altered|the file is missing).*prepare` again", text().open, "train", root)
            refuses(None, prepare, text(), root)
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))  # which hides it
        refuses("its hash does not fit", source.verify)
        file.write_bytes(before)
    manifest, plain = home / "manifest.json", (home / "manifest.json").read_text()
    places = range(5, len(plain), len(plain) // 20)
    for content in (
        plain.replace('"vocabulary": 300', '"vocabulary": 301'),
        plain.replace(shard["tokens_sha256"], "0" * 64),  # one that the fingerprint does not name
        *(plain[:place] + chr(ord(plain[place]) ^ 1) + plain[place + 1 :] for place in places),
    ):
        manifest.write_text(content)
        refuses(r"the manifest (is damaged|was altered)", text().open, "train", root)
    manifest.write_text(plain)
    (home / "trusted.json").write_text('{"train/00000.text.tokens": 5}')  # no stamp: the file is hashed again
    assert open_split(home, "train").tokens
    # A folder that may only be read is read.
    monkeypatch.setattr("scaling.data.store.atomic.write_json", Mock(side_effect=PermissionError(13, "denied")))
    assert open_split(home, "train").tokens
