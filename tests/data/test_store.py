"""The store: windows are the stream, documents are numbered as they lie, and no altered byte is ever read."""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

from scaling.base.errors import ScalingError
from scaling.data import rows
from scaling.data.prepare import prepare
from scaling.data.source import Source
from scaling.data.store import Manifest, PairedSource, open_split
from scaling.data.text import Text
from tests.data.conftest import line, write


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Text, Path]:
    """A data line, and the folder in which it is prepared."""
    folder = tmp_path_factory.mktemp("store")
    text = line(write(folder / "corpus"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rows, "PART", 8000)
        prepare(text, folder / "data")
    return text, folder / "data"


@pytest.fixture
def text(kept: tuple[Text, Path], root: Path) -> Text:
    shutil.copytree(kept[1], root)
    return kept[0]


@pytest.fixture
def home(text: Text, root: Path) -> Path:
    entry = text.entry(root)
    assert entry is not None
    return root / entry["fingerprint"]


@pytest.mark.parametrize(("split", "length"), [("train", 7), ("validation", 1000)])
def test_windows_are_the_stream_cut_up(home: Path, split: str, length: int) -> None:
    source = open_split(home, split)
    assert isinstance(source, Source)
    shards = source.manifest.splits[split]["text"]
    stream = np.concatenate([np.fromfile(home / f"{shard['name']}.tokens", "<u2") for shard in shards])
    assert len(stream) == source.tokens
    count = source.windows(length)
    assert count == len(stream) // length > 0
    numbers = np.random.default_rng(0).permutation(count)
    read = source.read(numbers, length, documents=True)
    np.testing.assert_array_equal(read.tokens, stream[: count * length].reshape(count, length)[numbers])
    ended = np.cumsum(read.tokens == source.specials["eos"], axis=1)
    np.testing.assert_array_equal(read.documents, 1 + np.pad(ended[:, :-1], ((0, 0), (1, 0))))
    carried = pickle.dumps(source)  # opens its files again
    assert len(carried) < 20_000
    np.testing.assert_array_equal(pickle.loads(carried).read(numbers, length).tokens, read.tokens)


def test_pairs_are_read_as_they_were_written_and_long_ones_are_cut(tmp_path: Path, root: Path) -> None:
    sides = [[f"how much is {n} and one" for n in range(99)], ["one " * (n % 7) + str(n + 1) for n in range(99)]]
    for name, texts in zip(("source", "text"), sides):
        (tmp_path / name).write_text("\n".join(texts))
    corpus = {"kind": "Parallel", "source": str(tmp_path / "source"), "target": str(tmp_path / "text")}
    source = open_split(prepare(line(tmp_path, corpus=corpus), root), "train")
    assert isinstance(source, PairedSource)
    count, eos = source.windows(64), source.specials["eos"]
    assert 60 < count < 99
    read, cut = source.read(np.arange(count), 64), source.read(np.arange(count), 5)
    assert read.source is not None
    assert cut.source is not None
    for row, lengths in enumerate(source.lengths.tolist()):
        texts = []
        for tokens, documents, length in zip(
            (read.source[row], read.tokens[row]), (read.source_documents[row], read.documents[row]), lengths
        ):
            assert documents.tolist() == [1] * length + [0] * (64 - length)
            assert tokens[length - 1 :].tolist() == [eos] + [source.specials["pad"]] * (64 - length)
            texts.append(source.decode(tokens[: length - 1]))
        assert tuple(texts) in {*zip(*sides)}
    assert cut.source.tolist() == [[*whole[:4], eos] for whole in read.source.tolist()]


# --- bad input ---


def altered(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


HARMS = {"altered": altered, "truncated": lambda file: os.truncate(file, file.stat().st_size - 2), "gone": Path.unlink}


@pytest.mark.parametrize("harm", HARMS)
def test_a_harmed_shard_is_found(text: Text, home: Path, root: Path, harm: str) -> None:
    for ending in ("tokens", "ends"):
        file = home / "train" / f"00002.text.{ending}"
        before = file.read_bytes()
        HARMS[harm](file)
        with pytest.raises(ScalingError, match=rf"00002\.text\.{ending}: (it was|the file is).*prepare` again"):
            text.open("train", root)
        with pytest.raises(ScalingError):
            prepare(text, root)
        file.write_bytes(before)


def test_an_alteration_that_hides_its_time_is_found_when_asked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, file = open_split(home, "train"), home / "train" / "00000.text.tokens"
    before = file.stat()
    altered(file)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(ScalingError, match="its hash does not fit"):
        source.manifest.check(home, trust=False)
    altered(file)
    (home / "trusted.json").unlink()

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("scaling.data.store.atomic.write_json", refuse)  # a folder that may only be read is read
    assert open_split(home, "train").tokens


def test_an_altered_manifest_is_found(text: Text, home: Path, root: Path) -> None:
    manifest = home / "manifest.json"
    plain, shard = manifest.read_text(), Manifest.read(home).splits["train"]["text"][1]
    places = range(5, len(plain), len(plain) // 20)
    for content in (
        plain.replace('"vocabulary": 300', '"vocabulary": 301'),
        plain.replace(shard["tokens_sha256"], "0" * 64),  # one that the fingerprint does not name
        *(plain[:place] + chr(ord(plain[place]) ^ 1) + plain[place + 1 :] for place in places),
        "{",
    ):
        manifest.write_text(content)
        with pytest.raises(ScalingError, match=r"the manifest (is damaged|was altered)"):
            text.open("train", root)
