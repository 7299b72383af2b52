"""Our own folders, runs of the ledger, and the commands that read and write them."""

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tokenizers.processors import TemplateProcessing

from scaling.config.compose import load
from scaling.config.schema import build
from scaling.data.codec import Codec
from scaling.data.tokenizer import Byte
from scaling.interop import huggingface, weights
from scaling.interop import run as runs
from scaling.interop.huggingface import Saved
from scaling.ledger import Ledger
from scaling.verbs.command_line import main
from tests.command_line import printed, refused, refuses
from tests.disk import fill

SIZE = {"width": 16, "layers": 2, "heads": 2, "vocabulary": 260, "length": 64}


def saved(model="gpt2"):
    torch.manual_seed(0)
    sections = {"model": load(model)["model"], "size": SIZE}
    return Saved(sections, weights.of(build("model", sections["model"], SIZE)), {"eos": 2})


@pytest.fixture
def tokenizer(tmp_path):
    path = tmp_path / "tokenizer.json"
    Codec(Byte().fit(iter(()))).save(path)
    return path


def test_a_run_of_the_ledger_is_read_from_its_last_checkpoint(tmp_path):
    was, ledger = saved(), Ledger.create(tmp_path / "runs")
    data = {"kind": "Synthetic", "fingerprint": "none-train"}
    name = ledger.add({**was.sections, "data": data, "objective": {"kind": "Causal"}})
    with ledger.claim(name) as attempt:
        for step in (1, 2):
            with attempt.checkpoint(step, note={}) as folder:
                save_file({key: tensor + step for key, tensor in was.tensors.items()}, folder / "weights.safetensors")
        attempt.end("stopped", "enough")
    ledger.save_plan("mine", {"runs": [{"run": name, "name": "seed=0"}]})
    names = [name[:6], "mine:seed=0", tmp_path / "runs" / "store" / name]
    for found in (runs.read(each, tmp_path / "runs") for each in names):
        assert found.tokenizer is None
        assert found.ids == {"bos": 64, "start": 64}  # the source's own
        assert all(torch.equal(found.tensors[key], tensor + 2) for key, tensor in was.tensors.items())


def test_what_is_exported_and_imported_again_writes_the_same(tmp_path, tokenizer, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    was = replace(saved("t5"), tokenizer=tokenizer)
    runs.write("mine", was, "here")
    again = runs.read("mine")
    assert (again.sections, again.ids, again.tokenizer) == (was.sections, {"eos": 2}, Path("mine/tokenizer.json"))
    assert all(torch.equal(again.tensors[name], tensor) for name, tensor in was.tensors.items())
    mask = os.umask(0o022)
    exported = printed(capsys, "export", "mine", "--json")
    os.umask(mask)
    assert {stat.S_IMODE(path.stat().st_mode) for path in Path("mine-hf").iterdir()} == {0o644}
    assert exported["architecture"] == "T5ForConditionalGeneration"
    assert exported["parameters"] == printed(capsys, "import", "mine-hf", "--to", "again", "--json")["parameters"]
    for name, message in {"GPT2": "GPT2 has no model of this kind", "Lama": "did you mean 'Llama'?"}.items():
        assert message in refused(capsys, "export", "mine", "--to", "none", "--format", name)
        assert not Path("none").exists()
    question = ("--prompt", "Why?", "--prompt", "Because", "kind=Beam", "beams=2", "--steps", "5", "--json")
    first, second = (printed(capsys, "generate", name, *question) for name in ("mine", "again"))
    assert first == second
    assert [(answer["prompt"], len(answer["written"])) for answer in first] == [("Why?", 2), ("Because", 2)]


def test_an_exported_tokenizer_frames_texts_as_the_run_does(tmp_path, tokenizer):
    transformers = pytest.importorskip("transformers")
    own, other = (list(ids) for ids in Codec.load(tokenizer).encode(["Why?", "So"]))
    head = {"cls": 259, "sep": 260, "mask": 261}
    task = {"start": 259, "delim": 260, "extract": 261}
    for name, model, ids, one, both in (
        ("writes", "gpt2", {"start": 2}, own, [*own, *other]),
        ("translates", "t5", {"start": 1}, [*own, 2], [*own, 2, *other, 2]),
        ("masks", "bert", head, [259, *own, 260], [259, *own, 260, *other, 260]),
        ("classifies", "gpt2", task, [259, *own, 261], [259, *own, 260, *other, 261]),
    ):
        was = Saved({"model": load(model)["model"], "size": SIZE}, {}, {"pad": 0, "bos": 1, "eos": 2, **ids})
        (tmp_path / name).mkdir()
        huggingface.write_tokenizer(tmp_path / name, tokenizer, was)
        words = transformers.AutoTokenizer.from_pretrained(tmp_path / name)
        assert (words("Why?").input_ids, words("Why?", "So").input_ids) == (one, both), name
        assert words.bos_token_id == (1 if name == "masks" else ids["start"])
        assert (words.pad_token_id, words.eos_token_id) == (0, 2)
        assert ("token_type_ids" in words("Why?")) == (name == "masks")
        if name == "masks":
            assert words("Why? [MASK]").input_ids == [259, *own, 261, 260]  # the mask takes the space before it
    # One that adds something itself is left as it is.
    framed = Codec.load(tokenizer).tokenizer
    framed.post_processor = TemplateProcessing("<bos> $A", "<bos> $A $B", [("<bos>", 1)])
    Codec(framed).save(tmp_path / "framed.json")
    huggingface.write_tokenizer(tmp_path / "framed", tmp_path / "framed.json", saved("t5"))
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "framed")("Why?").input_ids == [1, *own]


def test_a_model_without_a_tokenizer_reads_ids_and_what_cannot_be_done_is_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    was = saved()
    for name in ("run", "altered", "named", "beyond"):
        runs.write(name, was, "here")
    tensors = {name: tensor for name, tensor in was.tensors.items() if not name.endswith("stack.norm.gain")}
    weights.save(Path("altered", weights.FILE), {**tensors, "stranger": torch.zeros(1)})
    Path("named", "ids.json").write_text('{"eos": "two"}')
    Path("beyond", "ids.json").write_text('{"start": 260}')
    Path("pipe").mkdir()
    os.mkfifo(Path("pipe", "config.json"))  # reading one waits for a writer
    for words, message in {
        "generate run --prompt=x": "no tokenizer",
        "generate run --prompt=-1": "token -1 is beyond the vocabulary of 260",
        "generate run --prompt=\udcff": "it is not UTF-8",
        "show run": "it is a model without a ledger",
        "generate altered --prompt=5": "missing decoder.stack.norm.gain, extra stranger",
        "generate named --prompt=5": "ids.json.eos='two': expected a whole number from 0 and below 260",
        "generate beyond --prompt=5": "ids.json.start=260: expected",
        "export run --to altered": "it exists already",
        "import run": "there is no config.json",
        "import pipe": "pipe/config.json: is not a regular file",
    }.items():
        assert message in refused(capsys, *words.split())
    assert printed(capsys, "generate", "run", "--prompt", "5 9", "--steps", "3").startswith("5 9 ")


def test_an_import_goes_on_after_a_full_disk(tmp_path, small_disk):
    theirs, ours = str(tmp_path / "theirs"), small_disk / "ours"
    huggingface.write(theirs, saved())
    fill(small_disk, 8192)
    assert main(["import", theirs, "--to", str(ours)]) == 74
    (small_disk / "filler").unlink()
    assert list(small_disk.iterdir()) == []
    assert main(["import", theirs, "--to", str(ours)]) == 0
    assert runs.read(ours).tensors.keys() == saved().tensors.keys()


def test_a_tied_table_may_stand_under_each_of_its_names(tmp_path):
    was = saved()
    runs.write(tmp_path, was, "here")
    table = was.tensors["decoder.embedding.table"].detach().clone()
    weights.save(tmp_path / weights.FILE, {**was.tensors, "head.weight": table})
    assert "head.weight" not in runs.read(tmp_path).tensors
    weights.save(tmp_path / weights.FILE, {**was.tensors, "head.weight": table + 1})
    refuses(r"tied to decoder\.embedding\.table and differs", runs.read, tmp_path)
