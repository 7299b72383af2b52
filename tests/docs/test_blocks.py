"""Every command in a block of the documents runs, in the document's order, in one folder with a ledger of its own.

A document's commands are run at a small size: words that make data, models and budgets small are added to them, and the
names that stand for something of the reader's (RUN, points.csv, my_study.yaml) are there. A file that a document itself
shows, as a block that begins with `# mine.py`, is written from it. What cannot run here is named with its reason.
"""

from __future__ import annotations

import gzip
import io
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from scaling.base.errors import BAD_INPUT
from scaling.cli import main
from tests.docs.blocks import DOCUMENTS, ROOT, blocks, words

PYTHON = [
    *("data.corpus.reach=standard", "data.corpus.limit=400k", "data.validation=0.3"),
    *("data.tokenizer.vocabulary=500", "data.tokenizer.sample=200k"),
]
BUDGET = ["trainer.max_steps=2", "train.batch=2", "evaluate.windows=2", "evaluate.points=1", "log.wandb=disabled"]
SIZE = ["size.width=8", "size.layers=1", "size.heads=1", "size.length=16"]
TRIALS = [*BUDGET, *SIZE, "schedule.warmup=1", "--count", "2"]
# What is added to a verb's words, after the words that ask for it.
SMALL: dict[tuple[str, ...], list[str]] = {
    ("train",): [*BUDGET, "schedule.warmup=1"],
    ("table", "--train"): [*BUDGET, *SIZE, "seeds=1", "schedule.warmup=1", "data=synthetic", "--workers", "1"],
    ("table", "narang2021_cpu"): ["--row", "Vanilla Transformer", "--row", "Swish"],
    ("decide", "narang2021_cpu"): ["--row", "Vanilla Transformer", "--row", "Swish"],
    ("landscape",): ["--windows", "2"],
    ("sweep", "--local"): TRIALS,
    ("sweep", "--missing"): TRIALS,
}
# The commands that are not run, by how they begin, and why; what the tests of a folder run is run by these.
LEFT_OUT = {
    "an environment would be installed": ["make "],
    "it opens a browser": ["open "],
    "it needs W&B's server; tests/sweeps runs it against one": [
        *("wandb login", "wandb agent", "scaling sweep sweeps/learning_rate.yaml", "scaling pull"),
        *("scaling fit wandb:", "scaling table narang2021 --from", "scaling decide narang2021 --from"),
    ],
    "it needs a cluster; tests/executors runs it on scripts that play one": ["scaling submit"],
    "it needs sets of the hub, or vectors that are to be downloaded": [
        *("scaling table bert2018_glue --train --downstream", "scaling table narang2021_cpu --train --downstream"),
        *("scaling data prepare c4", "scaling data prepare mnli"),
        "scaling train decoder data=python size.width=100 start.vectors",
    ],
    "tests/training runs it": ["scaling finetune", "scaling evaluate", "scaling predict"],
    "tests/laws runs it": ["scaling compare", "scaling fit runs/studies/NAME/report/best.csv"],
    "tests/inside runs it": ["scaling look bert", "scaling look marian", "scaling probe"],
    "it is a test, or measures the machine": ["pytest ", "python -m tests.interop.parity", "python benchmarks/"],
}
STARTS = [start for starts in LEFT_OUT.values() for start in starts]
RUN_ALL_THE_SAME = ("--dry-run", "--local")  # of commands whose beginning is left out
SLOW = re.compile(r"(data|inside|laws|long|mixture|report|seq2seq|studies|sweeps|tables)\.md")


# Files of the reader's own.
LABELS = ["ABBR", "ENTY", "DESC", "HUM", "LOC", "NUM"]
FILES = {
    "reviews.csv": "review\n" + "".join(f'"review {i}, {"of many words " * 20}{i * 7}"\n' for i in range(600)),
    "mine.txt": "\n\n".join(f"document {number} of words" * 5 for number in range(200)),
    "pairs.tsv": "".join(f"satz {number} .\tsentence {number} .\n" for number in range(60)),
    "sentences.txt": "one sentence\nand a second one\n",
    "my_config.yaml": "base: decoder\ndata: python\n",
    **dict.fromkeys(("quickstart.yaml", "my_study.yaml"), (ROOT / "tests/studies/small.yaml").read_text()),
    "pulled/points.csv": "",
}
for _split in ("train", "dev", "val", "test"):
    FILES[f"{_split}.mrg.gz"] = "".join(f"(S (NP (DT the) (NN {_split}{i})) (VP (VBZ sits)))\n" for i in range(60))
    for _language in ("de", "en"):
        FILES[f"{_split}.{_language}.gz"] = "".join(f"{_split} satz {i} {_language} .\n" for i in range(60))
    FILES[f"trec/{_split}.jsonl"] = "".join(
        f'{{"text": "question {_split} {i} ?", "label": "{LABELS[i % 6]}"}}\n' for i in range(120)
    )


def drawn_curves(seed: int) -> pd.DataFrame:
    """Curves of the quickstart's design, a row a logged loss."""
    from benchmarks.coverage.studies import KINDS, curve_design, draw_curves

    def rows(curve: Any) -> pd.DataFrame:
        measured = {"tokens": curve.steps * curve.tokens_per_step, "lr": curve.rates[curve.steps - 1]}
        return pd.DataFrame(
            {"run": curve.run, "N": curve.N, "trunk": curve.trunk, "step": curve.steps, "loss": curve.losses} | measured
        )

    return pd.concat(map(rows, draw_curves(curve_design(), KINDS["trunks differ most"], np.random.default_rng(seed))))


@dataclass
class Scene:
    """A reader's folder."""

    folder: Path
    capfd: pytest.CaptureFixture[str]
    monkeypatch: pytest.MonkeyPatch
    run: str = ""

    def __call__(self, *line: str) -> str:
        code = main(line)
        out, error = self.capfd.readouterr()
        assert code == 0, f"scaling {' '.join(line)}: {error}"
        return out

    def prepare(self, text: str) -> None:
        """Make what the commands take for granted."""
        for name, content in FILES.items():
            path = self.folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())
        points = pd.read_csv(ROOT / "docs/results/overtraining/points.csv")
        spread = 1 + 0.005 * np.random.default_rng(0).standard_normal(len(points))
        points["error"], points["c4_loss"] = 1 - 0.9 * (2.0 / points["loss"]), points["loss"]
        points["accuracy"] = (0.25 + 0.7 / (1 + np.exp(4 * (points["loss"] - 2.6)))) * spread
        points["hellaswag_bpb"] = 0.3 + 0.2 * points["loss"] ** 1.5 * spread
        points["code_loss"] = 0.7 * points["loss"] ** 1.2 * spread
        for name in ("points.csv", "pulled/points.csv"):
            points.to_csv(name, index=False)
        if "curves.csv" in text:
            drawn_curves(5).to_csv("curves.csv", index=False)
        if re.search(r"\b(RUN|FOLDER|MODEL)\b", text):
            data = ["data.tokenizer=Byte", "data.validation=0.1"]
            self("data", "prepare", "mine.txt", *data)
            self.run = self("train", "decoder", "data=mine.txt", *data, *SMALL["train",]).split()[1].rstrip(":")
        if "scaling report quickstart" in text and "scaling study" not in text:
            self("study", "quickstart.yaml")
            shutil.copytree("runs", "kept")
            shutil.move("kept", "runs/quickstart")

    def small(self, command: str) -> list[str]:
        """The words of a command of `scaling`, at a small size and with what its names stand for."""
        line = [re.sub(r"^RUN\b", self.run, "RUN-hf" if word == "FOLDER" else word) for word in words(command)[1:]]
        if line[0] in ("plan", "study") and "quickstart" in line:
            line[line.index("quickstart")] = "quickstart.yaml"
        for asked, more in SMALL.items():
            if asked[0] == line[0] and set(asked[1:]) <= set(line):
                line += more
        if {"python", "data=python"} & set(line):
            line += PYTHON
        if "Maxout" in command:
            line += ["--extend", "maxout.py"]
        return line


@pytest.fixture
def scene(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Scene:
    for name in ("configs", "sweeps"):
        (tmp_path / name).symlink_to(ROOT / name)
    for name in ("narang2021", "overtraining"):
        shutil.copytree(ROOT / "docs/results" / name, tmp_path / "docs" / "results" / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SCALING_DATA", raising=False)
    monkeypatch.setenv("WANDB_MODE", "disabled")
    return Scene(tmp_path, capfd, monkeypatch)


def left_out(command: str) -> str | None:
    """The beginning by which a command is left out."""
    if any(flag in command for flag in RUN_ALL_THE_SAME):
        return None
    return next((start for start in STARTS if command.startswith(start)), None)


def commands(document: Path) -> list[str]:
    return [command for block in blocks(document) for command in block.commands]


CASES = [  # READMEs, as those of results, have whole studies
    pytest.param(document, id=document.name, marks=[pytest.mark.slow] if SLOW.fullmatch(document.name) else [])
    for document in DOCUMENTS
    if document.name != "README.md" and not all(map(left_out, commands(document)))
]


def test_every_command_that_is_not_run_has_a_reason_that_holds() -> None:
    every = [command for document in DOCUMENTS for command in commands(document)]
    assert [start for start in STARTS if not any(left_out(command) == start for command in every)] == []


@pytest.mark.parametrize("document", CASES)
def test_the_commands_of_a_document_run(document: Path, scene: Scene) -> None:
    answers = {command: line for block in blocks(document) for command, line in block.answers.items()}
    for block in blocks(document):
        if block.file is not None:  # a class of the package joins its slot, as one of the reader's own does
            slot = f'    slot = "{Path(block.file).parent.name}"\n'
            Path(Path(block.file).name).write_text(re.sub(r"(class \w+\(nn\.Module\):\n)", rf"\1{slot}", block.text))
    asked = [command for command in commands(document) if not left_out(command)]
    scene.prepare("\n".join(asked))
    for command in asked:
        line, _, file = command.partition(" < ")
        if file:
            scene.monkeypatch.setattr("sys.stdin", io.StringIO(Path(file).read_text()))
        if command in answers:
            assert main(scene.small(line)) in (0, BAD_INPUT)
            assert answers[command] in scene.capfd.readouterr().err.splitlines()
        else:
            scene(*scene.small(line))
