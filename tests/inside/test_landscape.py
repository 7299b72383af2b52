"""The loss around a model: directions, values against their definition, the figure, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import scaling
from scaling import config
from scaling.batch import Batch
from scaling.cli import main
from scaling.config import load
from scaling.inside.landscape import direction, landscape
from scaling.model.family import Family
from scaling.model.parameters import parameters
from scaling.model.tuned import build_model
from scaling.training.experiment import assemble
from scaling.training.run import train

SIZE = {"width": 16, "layers": 2, "heads": 2, "vocabulary": 40, "length": 16}


@pytest.fixture
def model() -> Family:
    torch.manual_seed(0)
    return build_model({"model": load("bert")["model"], "size": SIZE}).eval()


def test_every_filter_of_a_direction_is_as_large_as_the_models(model: Family) -> None:
    for spec, parameter in parameters(model):
        drawn = direction(model, 3)[spec.name]
        if parameter.ndim < 2:
            assert not drawn.any()
            continue
        torch.testing.assert_close(drawn.flatten(1).norm(dim=1), parameter.flatten(1).norm(dim=1))
        other = direction(model, 4)[spec.name]
        cosine = torch.nn.functional.cosine_similarity(drawn.flatten(), other.flatten(), dim=0)
        assert abs(float(cosine)) < 0.5 or parameter.numel() < 100


@torch.no_grad()
def test_a_point_is_the_loss_of_the_moved_weights_and_the_model_stays(model: Family) -> None:
    tokens = torch.randint(0, 40, (3, 12), generator=torch.Generator().manual_seed(1))
    batch = Batch(tokens, tokens.roll(1, 0))
    kept = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    loss = landscape(model, [batch, batch], side=3, reach=0.5, seed=2)
    assert all(torch.equal(tensor, kept[name]) for name, tensor in model.state_dict().items())
    assert loss[1, 1] == pytest.approx(float(model.losses(batch).mean()), rel=1e-5)
    first, second = direction(model, 4), direction(model, 5)
    for spec, parameter in parameters(model):
        parameter += 0.5 * first[spec.name] - 0.5 * second[spec.name]
    assert loss[2, 0] == pytest.approx(float(model.losses(batch).mean()), rel=1e-5)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("landscape")
    words = ["size=tiny", "size.length=16", "size.vocabulary=null", "data=synthetic", "data.symbols=8", "seed=1"]
    words += ["trainer.max_steps=60", "train.batch=16", "optimizer.lr=0.02", "schedule.warmup=5", "log.wandb=disabled"]
    words += ["evaluate.points=1", "data.validation=4096", f"runs={folder}"]
    without = [*words, "model.block.residual=NoResidual"]
    return folder, [train(assemble(config.load("decoder", each)))["run"] for each in (words, without)]


def test_two_runs_are_drawn_on_one_scale(
    runs: tuple[Path, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, names = runs
    words = ["landscape", *names, f"runs={folder}", "--side", "5", "--windows", "8"]
    for ending in ("png", "pdf", "svg"):
        assert main([*words, "--to", str(tmp_path / f"both.{ending}")]) == 0
        assert (tmp_path / f"both.{ending}").stat().st_size > 2000
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [each["run"] for each in document["runs"]] == names
    for each in document["runs"]:
        loss = np.array(each["losses"])
        assert loss.shape == (5, 5)
        assert each["loss"] == loss[2, 2]
        edge = np.r_[loss[0], loss[-1], loss[1:-1, 0], loss[1:-1, -1]]
        assert each["border"] == pytest.approx(edge.mean() - loss[2, 2])
        assert each["border"] > 0  # trained weights are better than those around them
    again = scaling.landscape(names[0], side=5, windows=8, runs=folder)
    assert again.losses[names[0]].tolist() == document["runs"][0]["losses"]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--side", "4"], "expected an odd number"),
        (["--reach", "0"], "reach=0.0: expected a number above 0"),
        (["--windows", "0"], "expected a positive whole number"),
        (["--windows", "9999999999"], "up to 65,536"),
        (["--to", "a.docx"], "there is no such kind of file"),
    ],
)
def test_what_cannot_be_drawn_is_one_line(
    words: list[str], what: str, runs: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["landscape", runs[1][0], *words, f"runs={runs[0]}"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert what in error
