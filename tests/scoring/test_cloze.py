"""Cloze prompts: each family's score of an option against its definition, the command, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import scaling
from scaling.batch import Batch
from scaling.cli import main
from scaling.config import load
from scaling.data.codec import Codec
from scaling.data.tokenizer import Byte
from scaling.interop import run as runs
from scaling.interop import weights
from scaling.interop.huggingface import Described
from scaling.interop.run import Run
from scaling.schema import build
from scaling.scoring.cloze import PROMPTS

SIZE = {"width": 16, "layers": 1, "heads": 2, "vocabulary": 262, "length": 224}
IDS = {
    "gpt2": {"eos": 2, "start": 2},
    "bert": {"cls": 259, "sep": 260, "mask": 261},
    "t5": {"eos": 2, "start": 0, "pad": 0, "sentinel_0": 260, "sentinel_1": 261},
    "marian": {"eos": 2, "start": 0, "pad": 0},
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("cloze")
    Codec(Byte().fit(iter(()))).save(top / "tokenizer.json")
    for name, ids in IDS.items():
        torch.manual_seed(3)
        sections = {"model": load(name)["model"], "size": SIZE}
        model = build("model", sections["model"], SIZE)
        runs.write(top / name, Run(Described(sections, weights.of(model), ids), top / "tokenizer.json"), "here")
    runs.write(top / "mute", Run(Described(sections, weights.of(model), {}), None), "here")
    return top


def nats(logits: torch.Tensor, tokens: list[int]) -> float:
    return -float(logits.double().log_softmax(-1).gather(-1, torch.tensor(tokens)[:, None]).sum())


@pytest.mark.parametrize("family", IDS)
@torch.no_grad()
def test_options_are_scored_as_the_family_writes_or_reads_them(family: str, folders: Path) -> None:
    model = scaling.load(folders / family, device="cpu")
    assert model.tokenizer is not None
    scored = scaling.evaluate_cloze(str(folders / family), device="cpu").scored
    prompt, own, codec, module = scored[1], PROMPTS[1], model.tokenizer, model.module
    before, after = own.halves()
    head, option, tail = (list(ids) for ids in codec.encode([before, f" {own.options[0]}", after]))
    if family == "gpt2":
        row = torch.tensor([[2, *head, *option, *tail]])
        expected = nats(module.logits(Batch(row, row))[0, len(head) : -1], option + tail)  # type: ignore[operator]
    elif family == "bert":
        row = torch.tensor([[259, *head, *[261] * len(option), *tail, 260]])
        logits = module.logits(Batch(row, row))[0, 1 + len(head) :][: len(option)]  # type: ignore[operator]
        expected = nats(logits, option)
    else:
        gap = family == "t5"
        source = [*head, 260, *tail, 2] if gap else [*head, 2]
        target = [260, *option, 261] if gap else option + tail
        row = torch.tensor([[0, *target[:-1]]])
        expected = nats(module.logits(Batch(row, row, source=torch.tensor([source])))[0], target)  # type: ignore[operator]
    assert prompt["nats"][0] == pytest.approx(expected, rel=1e-5)


def test_gaps_are_sentinels_of_a_model_that_has_them(folders: Path) -> None:
    model = scaling.load(folders / "t5", device="cpu")
    assert model.tokenizer is not None
    a, b = (list(ids) for ids in model.tokenizer.encode(["the", " law"]))
    assert model.encoded("the [MASK] law") == [*a, 260, *b]
    assert model.encoded("the [MASK] law [MASK]") == [*a, 260, *b, 261]
    with pytest.raises(scaling.ScalingError, match="has 2 sentinels, and the text has more gaps"):
        model.encoded("[MASK] [MASK] [MASK]")
    plain = scaling.load(folders / "marian", device="cpu")
    assert plain.encoded("the [MASK]") == list(model.tokenizer.encode(["the [MASK]"])[0])


def test_the_command_prints_each_prompt_and_its_document(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["evaluate-cloze", str(folders / "bert"), "--to", str(tmp_path / "each.csv")]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert all(prompt.text in printed for prompt in PROMPTS)
    assert len((tmp_path / "each.csv").read_text().splitlines()) == 1 + len(PROMPTS)
    assert main([*words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["chance"] == 0.25
    low, high = document["intervals"]["accuracy"]
    assert low <= document["metrics"]["accuracy"] <= high
    chosen = [prompt["nats"].index(min(prompt["nats"])) for prompt in document["prompts"]]
    assert chosen == [prompt["chosen"] for prompt in document["prompts"]]


def test_a_run_without_a_tokenizer_is_refused(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate-cloze", str(folders / "mute")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "the run has no tokenizer" in error
