"""`scaling look`, `scaling landscape`: the scores, the page, the figure, and what is refused."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

import scaling
from scaling.base.batch import Batch
from scaling.cli import main
from scaling.config.compose import load
from scaling.inside.effects import direction, landscape
from scaling.model.parameters import parameters
from scaling.model.tuned import build_model

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def test_the_document_has_each_layer_and_each_head(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["look", str(folders / "gpt2"), "a law"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["layer", "head", "entropy", "distance", "previous", "positional", "offset", "induction"]
    assert [line.split()[:2] for line in lines[1:7]] == [[str(n), str(h)] for n in range(3) for h in range(2)]
    seen = scaling.look(folders / "bert", "a [MASK] law")
    assert seen.tokens == {"encoder": ["[CLS]", "a", "[MASK]", *" law", "[SEP]"]}
    assert [each.weights.shape for each in seen.maps] == [(2, 8, 8)] * 3
    assert main(["look", str(folders / "t5"), "a law", "--target", "ein", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["tokens"] == {"encoder": [*"a law", "[EOS]"], "decoder": ["[PAD]", *"ein"]}
    names = [layer["name"] for layer in document["layers"]]
    parts = [f"{part}.{n}" for n in range(3) for part in ("decoder", "cross")]
    assert names == [f"encoder.{n}" for n in range(3)] + parts
    assert len(document["heads"]) == 2 * len(names)


def test_text_cannot_act_as_markup(folders: Path, tmp_path: Path) -> None:
    attack = "</script><img src=x>&'\""
    scaling.look(folders / "gpt2", attack).save(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "<img" not in page
    assert page.count("</script>") == 2
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    (each, *_) = json.loads(data[1])["maps"]
    assert "".join(each["rows"]).endswith(attack)
    assert list(each["scores"][0]) == ["entropy", "distance", "previous", "positional", "offset", "induction"]


REFUSED = {
    "look gpt2 " + 6 * "aaaaaaaaaa": "61 tokens are more than the 48",
    "look gpt2 law --to a.docx": "no such kind of file",
    "look gpt2 law --target x": "reads no target",
    "landscape gpt2 --side 4": "expected an odd number",
    "landscape gpt2": "its training data are unknown",
    "probe gpt2 cola": "the answers are class, and a probe predicts tags",
    "probe gpt2 rankz": "there is no such task",
}


def test_what_cannot_be_done_is_one_line(
    folders: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folders)
    for words, message in REFUSED.items():
        assert main(words.split()) == 2
        (error,) = capsys.readouterr().err.splitlines()
        assert message in error


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: apt install chromium")
def test_the_page_draws_itself_in_a_browser(folders: Path, tmp_path: Path) -> None:
    scaling.look(folders / "gpt2", "the law of the land").save(tmp_path / "page.html")
    words = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000", f"--user-data-dir={tmp_path}"]
    command = [str(CHROMIUM), *words, "--dump-dom", (tmp_path / "page.html").as_uri()]
    drawn = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert "Layer 0, head 0" in drawn
    assert drawn.count("<canvas") == 3 * 2 + 1
    assert drawn.count("<line") > 19


@torch.no_grad()
def test_a_point_is_the_loss_of_the_moved_weights_and_the_model_stays() -> None:
    torch.manual_seed(0)
    size = {"width": 16, "layers": 2, "heads": 2, "vocabulary": 40, "length": 16}
    model = build_model({"model": load("bert")["model"], "size": size}).eval()
    tokens = torch.randint(0, 40, (3, 12), generator=torch.Generator().manual_seed(1))
    batch = Batch(tokens, tokens.roll(1, 0))
    kept = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    loss = landscape(model, [batch, batch], side=3, reach=0.5, seed=2)
    assert all(torch.equal(tensor, kept[name]) for name, tensor in model.state_dict().items())
    assert loss[1, 1] == pytest.approx(float(model.losses(batch).mean()), rel=1e-5)
    first, second = direction(model, 4), direction(model, 5)
    for spec, parameter in parameters(model):
        rows = first[spec.name].flatten(1).norm(dim=1) if parameter.ndim > 1 else torch.zeros(1)
        torch.testing.assert_close(rows, parameter.flatten(1).norm(dim=1) if parameter.ndim > 1 else rows)
        assert parameter.ndim > 1 or not first[spec.name].any()
        assert parameter.numel() < 100 or abs(float((first[spec.name] * second[spec.name]).sum())) < rows.square().sum()
        parameter += 0.5 * first[spec.name] - 0.5 * second[spec.name]
    assert loss[2, 0] == pytest.approx(float(model.losses(batch).mean()), rel=1e-5)


def test_runs_are_drawn_on_one_scale(
    learned: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, name = learned
    words = ["landscape", name, name, f"runs={folder}", "--side", "5", "--windows", "8", "--json"]
    assert main([*words, "--to", str(tmp_path / "both.png")]) == 0
    (each,) = json.loads(capsys.readouterr().out)["runs"]
    loss = np.array(each["losses"])
    assert (tmp_path / "both.png").stat().st_size > 2000
    assert loss.shape == (5, 5)
    assert each["loss"] == loss[2, 2]
    edge = np.r_[loss[0], loss[-1], loss[1:-1, 0], loss[1:-1, -1]]
    assert each["border"] == pytest.approx(edge.mean() - loss[2, 2])
    assert each["border"] > 0  # trained weights are better than those around them
