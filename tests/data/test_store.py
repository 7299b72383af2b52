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
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Text, Path]:
    """A data line and where it is prepared; pairs lie beside."""
    folder = tmp_path_factory.mktemp("store")
    text = line(write(folder / "corpus"))
    lines = range(200)
    (folder / "source").write_text("\n".join(f"how much is {number} and one" for number in lines))
    (folder / "target").write_text("\n".join("one " * (number % 7) + str(number + 1) for number in lines))
    corpus = {"kind": "Parallel", "source": str(folder / "source"), "target": str(folder / "target")}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rows, "PART", 8000)
        prepare(text, folder / "data")
        prepare(line(folder / "corpus", corpus=corpus), folder / "pairs")
    return text, folder


@pytest.fixture
def text(prepared: tuple[Text, Path], root: Path) -> Text:
    shutil.copytree(prepared[1] / "data", root)
    return prepared[0]


@pytest.fixture
def home(text: Text, root: Path) -> Path:
    entry = text.entry(root)
    assert entry is not None
    return root / entry["fingerprint"]


@pytest.fixture
def pairs(prepared: tuple[Text, Path]) -> Path:
    (manifest,) = (prepared[1] / "pairs").glob("*/manifest.json")
    return manifest.parent


@pytest.mark.parametrize("split", ["train", "validation"])
@pytest.mark.parametrize("length", [1, 7, 1000])
def test_windows_are_the_stream_cut_up(home: Path, split: str, length: int) -> None:
    source = open_split(home, split)
    assert isinstance(source, Source)
    shards = source.manifest.splits[split]["text"]
    stream = np.concatenate([np.fromfile(home / f"{shard['name']}.tokens", "<u2") for shard in shards])
    count = source.windows(length)
    assert count is not None
    assert count == len(stream) // length > 0
    rows = np.random.default_rng(0).permutation(count)
    read = source.read(rows, length, documents=True)
    np.testing.assert_array_equal(read.tokens, stream[: count * length].reshape(count, length)[rows])
    assert read.tokens.max() < source.vocabulary
    ended = np.cumsum(read.tokens == source.specials["eos"], axis=1)
    expected = 1 + np.concatenate([np.zeros((count, 1), int), ended[:, :-1]], axis=1)
    np.testing.assert_array_equal(read.documents, expected)


def test_pairs_are_read_as_they_were_written(pairs: Path) -> None:
    source = open_split(pairs, "train")
    assert isinstance(source, PairedSource)
    assert isinstance(source, Source)
    count = source.windows(64)
    assert count == len(source.lengths) > 100
    read = source.read(np.arange(count), 64)
    eos, pad = source.specials["eos"], source.specials["pad"]
    for row in range(count):
        asked, answered = read.source[row], read.tokens[row]
        for side, documents, length in zip(
            (asked, answered), (read.source_documents[row], read.documents[row]), source.lengths[row]
        ):
            assert side[length - 1] == eos
            assert (side[length:] == pad).all()
            assert documents.sum() == length == (documents == 1).sum()
        number = int(source.decode(asked[: source.lengths[row, 0] - 1]).split()[3])
        assert source.decode(answered[: source.lengths[row, 1] - 1]) == "one " * (number % 7) + str(number + 1)


def test_long_pairs_are_cut_and_still_end(pairs: Path) -> None:
    read = open_split(pairs, "train").read(np.arange(20), 5)
    assert (read.source[:, -1] == open_split(pairs, "train").specials["eos"]).all()
    assert (read.source_documents == 1).all()


def test_a_pickled_source_opens_its_files_again(home: Path) -> None:
    source = open_split(home, "train")
    source.read(np.arange(3), 64)
    carried = pickle.dumps(source)
    assert len(carried) < 20_000
    np.testing.assert_array_equal(
        pickle.loads(carried).read(np.arange(3), 64).tokens, source.read(np.arange(3), 64).tokens
    )


# --- bad input ---


def altered(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("ending", ["tokens", "ends"])
@pytest.mark.parametrize("harm", ["altered", "truncated", "missing"])
def test_a_harmed_shard_is_found(text: Text, home: Path, root: Path, ending: str, harm: str) -> None:
    file = home / "train" / f"00002.text.{ending}"
    if harm == "altered":
        altered(file)
    elif harm == "truncated":
        os.truncate(file, file.stat().st_size - 2)
    else:
        file.unlink()
    with pytest.raises(ScalingError, match=rf"00002\.text\.{ending}: (it was altered|the file is missing)") as caught:
        text.open("train", root)
    assert "prepare` again" in str(caught.value)
    with pytest.raises(ScalingError):
        prepare(text, root)


def test_an_alteration_that_hides_its_time_is_found_when_asked(home: Path) -> None:
    source = open_split(home, "train")
    file = home / "train" / "00000.text.tokens"
    before = file.stat()
    altered(file)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(ScalingError, match="its hash does not fit"):
        source.manifest.check(home, trust=False)


def test_an_altered_manifest_is_found(text: Text, home: Path, root: Path) -> None:
    manifest = home / "manifest.json"
    plain, shard = manifest.read_text(), Manifest.read(home).splits["train"]["text"][1]
    manifest.write_text(plain.replace('"vocabulary": 300', '"vocabulary": 301'))
    with pytest.raises(ScalingError, match="its hash does not fit"):
        text.open("train", root)
    manifest.write_text(plain.replace(shard["tokens_sha256"], "0" * 64))  # one that the fingerprint does not name
    with pytest.raises(ScalingError, match="its hash does not fit"):
        text.open("train", root)
    for place in range(5, len(plain), len(plain) // 20):
        manifest.write_text(plain[:place] + chr(ord(plain[place]) ^ 1) + plain[place + 1 :])
        with pytest.raises(ScalingError, match=r"the manifest (is damaged|was altered)"):
            text.open("train", root)
    manifest.write_text("{")
    with pytest.raises(ScalingError, match="the manifest is damaged"):
        text.open("train", root)


def test_a_folder_that_may_only_be_read_is_read(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "trusted.json").unlink()

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("scaling.data.store.atomic.write_json", refuse)
    assert open_split(home, "train").tokens
