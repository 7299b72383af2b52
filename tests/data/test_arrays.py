"""Arrays of token ids and word vectors: each form of them is read, and each mistake in them is one line."""

import gzip
import os
import struct
from typing import Any

import numpy as np
import pytest
import torch

import scaling
from scaling.config.compose import assignments, load
from scaling.config.schema import build
from scaling.data.batches import training
from scaling.data.codec import Codec
from scaling.data.plan import BatchSize
from scaling.data.source import Vocabulary
from scaling.data.vectors import read, table
from scaling.ledger import run_id
from scaling.objectives.causal import Causal
from scaling.studies import question
from scaling.studies.plan import plan
from scaling.training.experiment import assemble
from scaling.verbs.command_line import main
from tests import command_line
from tests.command_line import refuses
from tests.data.conftest import prepared, refused

IDS = np.random.default_rng(0).integers(4, 500, 20_000).astype(np.uint16)
IDS[::50] = 3


@pytest.fixture
def arrays(folder):
    files = {
        "plain.bin": IDS,
        "header.bin": np.concatenate([np.array([20240520, 1, len(IDS), *[0] * 253], "<i4").view(np.uint16), IDS]),
        "00000.ds": IDS,
        "megatron.bin": IDS.astype("<i4"),
        "megatron.idx": np.frombuffer(b"MMIDIDX\0\0" + (1).to_bytes(8, "little") + bytes([4]) + bytes(16), np.uint8),
        "wide.bin": IDS.astype("<u4"),
    }
    for name, content in files.items():
        content.tofile(folder / name)
    arrays = {"a": IDS[:12_000], "b": IDS[12_000:].astype(np.int64).reshape(80, 100), "negative": np.array([1, -5])}
    for name, content in {**arrays, "real": IDS.astype(np.float32), "objects": np.array([{}, 1], object)}.items():
        np.save(folder / f"{name}.npy", content, allow_pickle=True)
    return folder


def test_ids_come_out_as_they_are(arrays):
    for words in (
        ["data.files=[a.npy, b.npy]"],
        ["data.files=plain.bin", "data.dtype=uint16"],
        ["data.files=header.bin"],
        ["data.files=*.ds"],
        ["data.files=megatron.bin"],
        ["data.files=a.npy", "data.validation=b.npy"],
    ):
        data = build("data", {"kind": "Tokens", "vocabulary": 500, **assignments(words)["data"]})
        train, validation = (data.open(split, arrays / "data") for split in ("train", "validation"))
        assert train.tokens + validation.tokens == len(IDS)
        for source, first in ((train, 0), (validation, train.tokens)):
            np.testing.assert_array_equal(source.read(np.arange(10), 20).tokens.ravel(), IDS[first : first + 200])


def test_documents_end_at_eos_and_masked_ones_part_and_the_vocabulary_may_be_that_of_a_tokenizer(arrays, capsys):
    data = build("data", {"kind": "Tokens", "files": "a.npy", "vocabulary": 500, "eos": 3, "validation": 0.123})
    source = data.open("train", arrays / "data")
    assert source.tokens % 50 == 1, "validation begins behind the end of a document"
    own = source.read(np.array([2]), 120, documents=True)
    assert own.documents[0].tolist() == [1, *(1 + np.cumsum(own.tokens[0] == 3)[:-1])]
    objective = Causal(Vocabulary.of(source), 119, "decoder")
    joined, masked = (training(source, objective, BatchSize.of(4), 0, how).batch(0) for how in ("join", "mask"))
    assert joined.documents is None
    assert (masked.documents == 1 + (joined.tokens == 3).cumsum(1) - (joined.tokens == 3).long()).all()
    # The first token of a document is not a target of the one before.
    assert torch.equal(masked.targets, joined.targets.masked_fill(joined.tokens == 3, -100))
    codec = Codec(build("tokenizer", {"kind": "Byte"}).fit(iter(())))
    codec.save(arrays / "tokenizer.json")
    np.save(arrays / "text.npy", np.array([*codec.encode(["things " * 99])[0]], np.uint16))
    words = ["tokens", "data.files=text.npy", "data.tokenizer={kind: File, path: tokenizer.json}", "data.validation=.2"]
    assert prepared(capsys, *words)["train"]["vocabulary"] == 260
    shown = command_line.printed(capsys, "data", "show", *words, "--windows", "1", "size.length=32")
    assert "things" in shown
    file, status = arrays / "text.npy", (arrays / "text.npy").stat()
    file.write_bytes(file.read_bytes()[:-2] + b"\5\0")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    shown = ["data", "show", *words, "--windows", "0", "size.length=32"]
    command_line.printed(capsys, *shown)
    assert "text.npy: it was altered: its hash does not fit; put" in command_line.refused(capsys, *shown, "--verify")


def test_mistakes_in_arrays(arrays, capsys):
    words = ["decoder", "size=tiny", "data=tokens", "data.files=a.npy", "data.vocabulary=500", "train.documents=mask"]
    error = command_line.refused(capsys, "train", *words, "size.vocabulary=null")
    assert "no token of these arrays ends a document; set data.eos" in error
    np.array([20240520, 1], "<i4").tofile("short.bin")
    (arrays / "header.npy").write_bytes((arrays / "a.npy").read_bytes().replace(b"}", b"(", 1))
    for words, message in {
        "data.files=a.npy data.vocabulary=499": "is beyond the vocabulary of 499; raise data.vocabulary",
        "data.files=plain.bin": "plain.bin: data.dtype: a .bin file does not state the type of its ids; set",
        "data.files=wide.bin data.dtype=uint16": "every second uint16 is 0, as where ids are stored in more bytes",
        "data.files=a.npy data.dtype=uint32": "a.npy: data.dtype='uint32': it holds uint16, as its header states",
        "data.files=megatron.bin data.dtype=uint16": "it holds int32, as its header states; leave data.dtype out",
        "data.files=[]": "data.files=[]: it names no file",
        "data.files=short.bin": "short.bin: data.dtype: a .bin file does not state",
        "data.files=real.npy": "real.npy: it holds float32, and token ids are whole numbers; save",
        "data.files=objects.npy": "objects.npy: it is no .npy array that can be mapped: ",
        "data.files=header.npy": "header.npy: it is no .npy array that can be mapped: ",
        "data.files=negative.npy": "negative.npy: token -5 at position 1 is negative",
    }.items():
        assert message in refused(capsys, "tokens", "data.vocabulary=500", *words.split())


SIZE = ["size=tiny", "size.vocabulary=null", "size.length=32", "trainer.max_steps=3", "schedule.warmup=0"]
WORDS = {"law": [1, 2, 0.5], "the": [-1, 0, 3]}
LINES = b"law 1 2 0.5\nthe -1 0 3\n"
PACKED = [word.encode() + b" " + struct.pack("<3f", *vector) for word, vector in WORDS.items()]
FORMS = {
    "glove.txt": LINES,
    "fast.vec": b"2 3\n" + LINES.replace(b"\n", b" \n"),
    "word2vec.txt.gz": gzip.compress(b"2 3\n" + LINES),
    "plain.bin": b"2 3\n" + b"".join(PACKED),
    "lines.bin": b"2 3\n" + b"\n".join(PACKED) + b"\n",
}


def test_vectors_of_every_format_are_read_and_rows_that_have_none_are_drawn_alike(tmp_path):
    for name, content in FORMS.items():
        (tmp_path / name).write_bytes(content)
        found = read(tmp_path / name, 3, lambda word: True)
        assert {word: vector.tolist() for word, vector in found.items()} == WORDS
        assert list(read(tmp_path / name, 3, {"the"}.__contains__)) == ["the"]
    many = np.random.default_rng(0).normal(0.3, 2, (500, 3)).astype(np.float32)
    lines = [f"w{number} {' '.join(map(str, vector))}" for number, vector in enumerate(many)]
    (tmp_path / "many.vec").write_text("\n".join(lines) + "\n")
    tokens = ("", "w7", "W8", "other", *(f"none{number}" for number in range(400)), *(f"w{n}" for n in range(9, 500)))
    rows, covered = table(tmp_path / "many.vec", tokens, 3)
    assert covered == 493
    np.testing.assert_allclose(rows[1:3], many[7:9], rtol=1e-5)
    assert rows[3:404].mean() == pytest.approx(0.3, abs=0.2)
    assert rows[3:404].std() == pytest.approx(2, abs=0.2)


def test_mistakes_in_vectors_have_their_line(tmp_path):
    for name, content, line, what in (
        ("a.txt", b"law 1 2\nthe 3 4\n", 1, "have 2 numbers, and the model's 3; take size.width=2"),
        ("a.txt", b"law 1 2 3\nthe " + b"9" * 5000 + b" 4 5\n", 2, "not a finite number"),
        ("a.txt", b"law 1 2 3\n\xff 4 3 5\n", 2, "not UTF-8"),
        ("a.bin", b"2 3\nlaw \0\0\0\0", None, "ends at word 1 of 2"),
        ("a.bin", (793712314).to_bytes(4, "little") + b"abc", None, "take the .vec file"),
    ):
        (tmp_path / name).write_bytes(content)
        caught = refuses(what, read, tmp_path / name, 3, lambda word: True)
        assert (caught.file, caught.line) == (tmp_path / name, line)


def test_a_run_begins_with_the_vectors_and_may_keep_them_and_what_does_not_fit_is_one_line(tmp_path, capsys):
    vectors, soup = tmp_path / "words.vec", np.random.default_rng(0).normal(0, 0.3, 16)
    vectors.write_text(f"2 16\nsoup {' '.join(map(str, soup))}\nrome {' '.join(map(str, -soup))}\n")
    (tmp_path / "texts.txt").write_text("\n\n".join(f"{number} we eat soup in rome" for number in range(200)))
    data = [f"data={tmp_path}/texts.txt", "data.tokenizer={kind: ByteBPE, vocabulary: 300}", "data.validation=0.1"]
    prepared(capsys, *data, f"runs={tmp_path}/runs")
    train = ["train", "decoder", *SIZE, *data, f"runs={tmp_path}/runs", "train.batch=4", f"start.vectors={vectors}"]
    assert main([*train, "train.parts=['decoder.stack.*', 'head.*']", "log.wandb=disabled"]) == 0
    assert "tokens have a vector in" in capsys.readouterr().err
    (path,) = (tmp_path / "runs" / "store").iterdir()
    model: Any = scaling.load(path.name, runs=tmp_path / "runs", device="cpu")
    (token,) = model.tokenizer.encode([" soup"])[0]
    table = model.module.get_parameter("decoder.embedding.table").detach().numpy()
    np.testing.assert_allclose(table[token], soup, rtol=1e-6)
    # The other rows are drawn by the seed, also where a study plans several.
    study = {"question": "x", "base": "decoder", "grid": {"seed": [0, 1]}}
    for one in plan(question.read(study), train[2:]).runs:
        assert one.run == run_id(assemble(load("decoder", one.overrides)).spec)
    # The language that stands in for data which are not prepared has no words.
    assert all(one.experiment.start is None for one in plan(question.read(study), train[2:], "stand_in").runs)
    for change, message in {
        "size.width=32": "the vectors have 16 numbers, and the model's 32",
        "start.vectors=nowhere.vec": "there is no such file",
        "start.folder=x": "names weights by folder and by vectors",
    }.items():
        assert message in command_line.refused(capsys, *train, change)
