"""Arrays of token ids: each form that a person may have them in is read where it lies, and each mistake is one line."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scaling.cli import main
from scaling.config.compose import assignments
from scaling.config.schema import build
from scaling.data.codec import Codec
from tests.data.conftest import prepared, refused

IDS = np.random.default_rng(0).integers(4, 500, 20_000).astype(np.uint16)
IDS[::50] = 3
HEADER = np.array([20240520, 1, len(IDS), *[0] * 253], "<i4").tobytes()
MEGATRON = b"MMIDIDX\0\0" + (1).to_bytes(8, "little") + bytes([4]) + bytes(16)


@pytest.fixture
def arrays(folder: Path) -> Path:
    np.save(folder / "a.npy", IDS[:12_000])
    np.save(folder / "b.npy", IDS[12_000:].astype(np.int64).reshape(80, 100))
    np.save(folder / "real.npy", IDS.astype(np.float32))
    np.save(folder / "objects.npy", np.array([{}, 1], dtype=object), allow_pickle=True)
    np.save(folder / "negative.npy", np.array([1, 2, -5]))
    files = {"plain.bin": b"", "header.bin": HEADER, "00000.ds": b""}
    for name, before in files.items():
        (folder / name).write_bytes(before + IDS.tobytes())
    (folder / "megatron.bin").write_bytes(IDS.astype("<i4").tobytes())
    (folder / "megatron.idx").write_bytes(MEGATRON)
    (folder / "wide.bin").write_bytes(IDS.astype("<u4").tobytes())
    (folder / "odd.bin").write_bytes(b"abc")
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ["data.files=[a.npy, b.npy]"],
        ["data.files=plain.bin", "data.dtype=uint16"],
        ["data.files=header.bin"],
        ["data.files=*.ds"],
        ["data.files=megatron.bin"],
        ["data.files=a.npy", "data.validation=b.npy"],
    ],
    ids=["npy", "bin", "nanogpt", "datatrove", "megatron", "files for validation"],
)
def test_ids_come_out_as_they_are(arrays: Path, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    told = prepared(capsys, "tokens", "data.vocabulary=500", *words)
    assert told["train"]["vocabulary"] == 500
    data = build("data", {"kind": "Tokens", "vocabulary": 500, **assignments(words)["data"]})
    rows = [data.open(split, arrays / "data").read(np.arange(10), 20).tokens for split in ("train", "validation")]
    first = told["train"]["tokens"]
    assert first + told["validation"]["tokens"] == len(IDS)
    np.testing.assert_array_equal(rows[0].ravel(), IDS[:200])
    np.testing.assert_array_equal(rows[1].ravel(), IDS[first : first + 200])


def test_documents_end_at_eos(arrays: Path) -> None:
    data = build("data", {"kind": "Tokens", "files": "a.npy", "vocabulary": 500, "eos": 3, "validation": 0.123})
    source = data.open("train", arrays / "data")
    assert source.tokens % 50 == 1, "validation begins behind the end of a document"
    read = source.read(np.array([2]), 120, documents=True)
    assert read.documents is not None
    expected = 1 + np.concatenate([[0], np.cumsum(read.tokens[0] == 3)[:-1]])
    np.testing.assert_array_equal(read.documents[0], expected)
    assert pickle.loads(pickle.dumps(source)).read(np.array([2]), 120).tokens.tolist() == read.tokens.tolist()
    assert len(pickle.dumps(source)) < 2000


def test_the_vocabulary_may_be_that_of_a_tokenizer(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    codec = Codec(build("tokenizer", {"kind": "Byte"}).fit(iter(())))
    codec.save(folder / "tokenizer.json")
    ids = [token for n in range(99) for token in (*codec.encode([f"things {n}"])[0], codec.specials["eos"])]
    np.save(folder / "text.npy", np.array(ids, np.uint16))
    words = ["tokens", "data.files=text.npy", "data.tokenizer={kind: File, path: tokenizer.json}", "data.validation=.2"]
    assert prepared(capsys, *words)["train"]["vocabulary"] == 260
    assert main(["data", "show", *words, "--windows", "1", "size.length=32"]) == 0
    assert "things" in capsys.readouterr().out


MISTAKES: dict[str, Any] = {
    "data.files=a.npy data.vocabulary=null": "arrays of ids do not state their vocabulary; give",
    "data.files=a.npy data.vocabulary=400": "is beyond the vocabulary of 400; raise data.vocabulary",
    "data.files=plain.bin": "plain.bin: data.dtype: a .bin file does not state the type of its ids; set",
    "data.files=wide.bin data.dtype=uint16": "every second uint16 is 0, as where ids are stored in more bytes",
    "data.files=odd.bin data.dtype=uint16": "odd.bin: data.dtype='uint16': its 3 bytes are no whole number",
    "data.files=a.npy data.dtype=int32": "it holds uint16, as its header states; leave data.dtype out",
    "data.files=real.npy": "real.npy: it holds float32, and token ids are whole numbers; save",
    "data.files=objects.npy": "objects.npy: it is no .npy array that can be mapped: ",
    "data.files=negative.npy": "negative.npy: token -5 at position 2 is negative",
    "data.files=a.npy data.eos=500": "data.eos=500: it is beyond the vocabulary of 500",
    "data.files=a.npy data.validation=0": "no token of 12,000 falls to validation",
    "data.files=a.npy data.validation=a.npy": "a.npy: it is named for training and for validation",
    "data.files=a.npy data.tokenizer=ByteBPE": "it learns from text, and the data are tokens",
}


def test_mistakes_in_arrays(arrays: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in MISTAKES.items():
        assert message in refused(capsys, "tokens", "data.vocabulary=500", *words.split())
