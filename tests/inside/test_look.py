"""`scaling look` and `scaling.look`: the scores, the page, the figures, and what is refused."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import scaling
from scaling.cli import main
from scaling.config import load
from scaling.data.codec import Codec
from scaling.data.tokenizer import Byte
from scaling.interop import run as runs
from scaling.interop import weights
from scaling.interop.huggingface import Saved
from scaling.schema import build

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SIZE = {"width": 16, "layers": 3, "heads": 2, "vocabulary": 260, "length": 48}
IDS = {"gpt2": {"eos": 2}, "bert": {"cls": 256, "sep": 257, "mask": 258}, "t5": {"eos": 2, "start": 0, "pad": 0}}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model drawn at random for each family."""
    top = tmp_path_factory.mktemp("models")
    Codec(Byte().fit(iter(()))).save(top / "tokenizer.json")
    for name, ids in IDS.items():
        torch.manual_seed(0)
        sections = {"model": load(name)["model"], "size": SIZE}
        model = build("model", sections["model"], SIZE)
        runs.write(top / name, Saved(sections, weights.of(model), ids, tokenizer=top / "tokenizer.json"), "here")
    return top


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
    assert document["schema"] == 1
    assert document["tokens"] == {"encoder": [*"a law", "[EOS]"], "decoder": ["[PAD]", *"ein"]}
    names = [layer["name"] for layer in document["layers"]]
    assert names == [f"encoder.{n}" for n in range(3)] + [
        f"{part}.{n}" for n in range(3) for part in ("decoder", "cross")
    ]
    assert len(document["heads"]) == 2 * len(names)


def test_text_cannot_act_as_markup(folders: Path, tmp_path: Path) -> None:
    attack = "</script><img src=x>&'\""
    scaling.look(folders / "gpt2", attack).save(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "<img" not in page
    assert page.count("</script>") == 2
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    assert "".join(json.loads(data[1])["maps"][0]["rows"]).endswith(attack)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["gpt2", "a" * 60], "6[01] tokens are more than the 48"),
        (["gpt2", "a law", "--to", "a.docx"], "no such kind of file"),
        (["gpt2", "a law", "--target", "x"], "reads no target"),
        (["bert", "a law", "another"], "expected RUN TEXT, and found one more"),
        (["bert"], "expected RUN TEXT"),
        (["nowhere", "a law"], "no ledger"),
    ],
)
def test_what_cannot_be_looked_at_is_one_line(
    folders: Path, words: list[str], told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folders)
    assert main(["look", *words]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert re.search(told, error)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: apt install chromium")
def test_the_page_draws_itself_in_a_browser(folders: Path, tmp_path: Path) -> None:
    scaling.look(folders / "gpt2", "the law of the land").save(tmp_path / "page.html")
    words = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--virtual-time-budget=2000",
        f"--user-data-dir={tmp_path}/b",
    ]
    drawn = subprocess.run(
        [str(CHROMIUM), *words, "--dump-dom", (tmp_path / "page.html").as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout
    assert "Layer 0, head 0" in drawn
    assert drawn.count("<canvas") == 3 * 2 + 1
    assert drawn.count("<line") > 19
