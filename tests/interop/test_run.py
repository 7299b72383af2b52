"""Our own folders, runs of the ledger, and the commands that read and write them."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from scaling.cli import main
from scaling.config import load
from scaling.data.codec import Codec
from scaling.data.tokenizer import Byte
from scaling.decode import Beam, Greedy, generate, prompt
from scaling.errors import ScalingError
from scaling.interop import run as runs
from scaling.interop import weights
from scaling.interop.huggingface import Saved
from scaling.ledger import Ledger
from scaling.schema import build

SIZE = {"width": 16, "layers": 2, "heads": 2, "vocabulary": 260, "length": 64}


def described(model: str = "gpt2") -> Saved:
    torch.manual_seed(0)
    sections = {"model": load(model)["model"], "size": SIZE}
    return Saved(sections, weights.of(build("model", sections["model"], SIZE)), {"eos": 2})


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    path = tmp_path / "tokenizer.json"
    Codec(Byte().fit(iter(()))).save(path)
    return path


def test_a_folder_gives_back_what_was_written(tmp_path: Path, tokenizer: Path) -> None:
    was = replace(described(), tokenizer=tokenizer)
    runs.write(tmp_path / "run", was, "here")
    found = runs.read(tmp_path / "run")
    assert found.sections == was.sections
    assert found.ids == {"eos": 2}
    assert found.tokenizer == tmp_path / "run" / "tokenizer.json"
    assert all(torch.equal(found.tensors[name], t) for name, t in was.tensors.items())
    tokens = torch.tensor([[5, 9, 4]])
    assert generate(found.model(), prompt(tokens), Greedy(), steps=4) == generate(
        was.model(), prompt(tokens), Greedy(), steps=4
    )


def test_a_run_of_the_ledger_is_read_from_its_last_checkpoint(tmp_path: Path) -> None:
    was = described()
    ledger = Ledger.create(tmp_path / "runs")
    data = {"kind": "Synthetic", "fingerprint": "none-train"}
    name = ledger.add({**was.sections, "data": data, "objective": {"kind": "Causal"}})
    attempt = ledger.claim(name)
    assert attempt is not None
    with attempt:
        for step in (1, 2):
            with attempt.checkpoint(step, note={}) as folder:
                save_file({key: tensor + step for key, tensor in was.tensors.items()}, folder / "weights.safetensors")
        attempt.end("stopped", "enough")
    for found in (runs.read(name[:6], tmp_path / "runs"), runs.read(tmp_path / "runs" / "store" / name)):
        assert found.tokenizer is None
        assert found.ids == {"bos": 64, "start": 64}  # the source's own
        assert all(torch.equal(found.tensors[key], tensor + 2) for key, tensor in was.tensors.items())


def test_what_is_exported_and_imported_again_writes_the_same(
    tmp_path: Path, tokenizer: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runs.write("mine", replace(described("t5"), tokenizer=tokenizer), "here")
    said = [
        told(capsys, "export", "mine", "--json"),
        told(capsys, "import", "mine-hf", "--to", "again", "--json"),
    ]
    assert said[0]["architecture"] == "T5ForConditionalGeneration"
    assert said[0]["parameters"] == said[1]["parameters"]
    words = pytest.importorskip("transformers").AutoTokenizer.from_pretrained("mine-hf")
    assert words("Why?\n", add_special_tokens=False).input_ids == list(Codec.load(tokenizer).encode(["Why?\n"])[0])
    assert (words.pad_token_id, words.bos_token_id, words.eos_token_id) == (0, 1, 2)
    question = ("--prompt", "Why?", "--prompt", "Because", "kind=Beam", "beams=2", "--steps", "5", "--json")
    first, second = (told(capsys, "generate", name, *question) for name in ("mine", "again"))
    assert first == second
    assert [answer["prompt"] for answer in first] == ["Why?", "Because"]
    assert all(len(answer["written"]) == 2 for answer in first)


def test_an_exported_tokenizer_frames_texts_as_the_run_does(tmp_path: Path, tokenizer: Path) -> None:
    transformers = pytest.importorskip("transformers")
    from tokenizers.processors import TemplateProcessing

    from scaling.interop import huggingface

    own, other = (list(ids) for ids in Codec.load(tokenizer).encode(["Why?", "So"]))
    head = {"cls": 259, "sep": 260, "mask": 261}
    task = {"start": 259, "delim": 260, "extract": 261}
    cases: dict[str, tuple[str, dict[str, int], list[int], list[int]]] = {
        "writes": ("gpt2", {"start": 2}, own, [*own, *other]),
        "translates": ("t5", {"start": 1}, [*own, 2], [*own, 2, *other, 2]),
        "masks": ("bert", head, [259, *own, 260], [259, *own, 260, *other, 260]),
        "classifies": ("gpt2", task, [259, *own, 261], [259, *own, 260, *other, 261]),
    }
    for name, (model, ids, one, both) in cases.items():
        was = Saved({"model": load(model)["model"], "size": SIZE}, {}, {"pad": 0, "bos": 1, "eos": 2, **ids})
        (tmp_path / name).mkdir()
        huggingface.write_tokenizer(tmp_path / name, tokenizer, was)
        words = transformers.AutoTokenizer.from_pretrained(tmp_path / name)
        assert (words("Why?").input_ids, words("Why?", "So").input_ids) == (one, both), name
        assert words.bos_token_id == (1 if name == "masks" else ids["start"])
        assert (words.pad_token_id, words.eos_token_id) == (0, 2)
        assert ("token_type_ids" in words("Why?")) == (name == "masks")
    assert words("Why?", "So").keys() == {"input_ids", "attention_mask"}
    masks = transformers.AutoTokenizer.from_pretrained(tmp_path / "masks")
    assert masks("Why? [MASK]").input_ids == [259, *own, 261, 260]  # the mask takes the space before it
    assert (masks.cls_token_id, masks.sep_token_id, masks.mask_token_id) == (259, 260, 261)
    # One that adds something itself is left as it is.
    framed = Codec.load(tokenizer).tokenizer
    framed.post_processor = TemplateProcessing("<bos> $A", "<bos> $A $B", [("<bos>", 1)])
    Codec(framed).save(tmp_path / "framed.json")
    huggingface.write_tokenizer(tmp_path / "framed", tmp_path / "framed.json", described("t5"))
    words = transformers.AutoTokenizer.from_pretrained(tmp_path / "framed")
    assert words("Why?").input_ids == [1, *own]


def test_a_model_without_a_tokenizer_reads_and_writes_ids(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    was = described()
    runs.write(tmp_path / "run", was, "here")
    words = ["generate", str(tmp_path / "run"), "--prompt", "5 9", "--steps", "3"]
    (answer,) = told(capsys, *words, "kind=Beam", "--json")
    (row,) = generate(was.model(), prompt(torch.tensor([[5, 9]])), Beam(), steps=3, stop={2})
    assert [one["tokens"] for one in answer["written"]] == [one.tokens for one in row]
    assert main(words) == 0
    assert capsys.readouterr().out.startswith("5 9 ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["generate", "RUN", "--prompt", "5 x"], "no tokenizer"),
        (["generate", "RUN", "--prompt", "5 900"], "token 900 is beyond the vocabulary of 260"),
        (["generate", "RUN", "--prompt", "5 -1"], "not negative"),
        (["generate", "RUN", "--prompt", ""], "nothing to continue"),
        (["generate", "RUN", "--prompt", "5", "kind=Greed"], "did you mean 'Greedy'"),
        (["generate", "RUN", "--prompt", "5", "--steps", "90"], "write at most 64"),
        (["generate", "RUN", "--prompt", "5", "--device", "toaster"], "no such device"),
        (["generate", "EMPTY", "--prompt", "5"], "neither config.yaml nor spec.json"),
        (["export", "RUN", "--to", "EMPTY"], "there already"),
        (["export", "RUN", "--format", "onnx"], "invalid choice"),
        (["export", "nowhere"], "there is no ledger"),
        (["import", "RUN"], "there is no config.json"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runs.write("run", described(), "here")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "other.txt").touch()
    assert main([{"RUN": "run", "EMPTY": "empty"}.get(word, word) for word in words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_an_import_goes_on_after_a_full_disk(
    tmp_path: Path, tokenizer: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from scaling.interop import huggingface

    monkeypatch.chdir(tmp_path)
    huggingface.write("theirs", described())

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "model.safetensors")

    with monkeypatch.context() as patch:
        patch.setattr(weights, "save", full)
        assert main(["import", "theirs", "--to", "ours"]) == 74
    assert capsys.readouterr().err.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"theirs", "tokenizer.json"}
    assert main(["import", "theirs", "--to", "ours"]) == 0
    assert runs.read("ours").tensors.keys() == described().tensors.keys()


def test_altered_weights_are_named(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    was = described()
    runs.write(tmp_path / "run", was, "here")
    tensors = {name: tensor for name, tensor in was.tensors.items() if not name.endswith("stack.norm.gain")}
    weights.write(tmp_path / "run" / weights.FILE, {**tensors, "stranger": torch.zeros(1)})
    assert main(["generate", str(tmp_path / "run"), "--prompt", "5"]) == 2
    error = capsys.readouterr().err
    assert "missing decoder.stack.norm.gain, extra stranger" in error
    assert error.count("\n") == 1


def test_a_tied_table_may_stand_under_each_of_its_names(tmp_path: Path) -> None:
    was = described()
    runs.write(tmp_path, was, "here")
    table = was.tensors["decoder.embedding.table"].detach().clone()
    weights.write(tmp_path / weights.FILE, {**was.tensors, "head.weight": table})
    assert "head.weight" not in runs.read(tmp_path).tensors
    weights.write(tmp_path / weights.FILE, {**was.tensors, "head.weight": table + 1})
    with pytest.raises(ScalingError, match=r"tied to decoder\.embedding\.table and differs"):
        runs.read(tmp_path)


def told(capsys: pytest.CaptureFixture, *words: str) -> Any:
    capsys.readouterr()
    assert main(list(words)) == 0
    return json.loads(capsys.readouterr().out)
