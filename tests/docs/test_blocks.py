"""Every command in a block of the documents runs, in the document's order, in one folder with a ledger of its own.

A document's commands are run at a small size: words that make data, models and budgets small are added to them, and the
names that stand for something of the reader's (RUN, points.csv, my_study.yaml) are there. A file that a document itself
shows, as a block that begins with `# mine.py`, is written from it. What cannot run here is named with its reason.
"""

from __future__ import annotations

import gzip
import io
import itertools
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

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
TASKS = "tests/training/test_tasks.py runs it on runs and tasks of its own"
DOWNSTREAM = "its tasks are sets of the hub; tests/tables/test_downstream.py runs it on synthetic ones"
REMOTE = "it needs W&B's server; tests/sweeps runs it against one"
# The commands that are not run, by how they begin, and why.
LEFT_OUT = {
    "make ": "tests of the Makefile's targets would install an environment",
    "open ": "it opens a browser",
    "wandb login": REMOTE,
    "scaling sweep sweeps/learning_rate.yaml": REMOTE,
    "scaling submit": "it needs a cluster; tests/executors runs it on scripts that play one",
    "wandb agent": REMOTE,
    "scaling pull": REMOTE,
    "scaling fit wandb:": REMOTE,
    "scaling fit runs/studies/NAME/report/best.csv": "tests/laws/test_horizon.py fits such points",
    "scaling table narang2021 --from": REMOTE,
    "scaling decide narang2021 --from": "tests/tables/test_decision.py reads these points",
    "scaling table bert2018_glue --train --downstream": DOWNSTREAM,
    "scaling table narang2021_cpu --train --downstream": DOWNSTREAM,
    "scaling data prepare mnli": "it fetches a set of the hub; tests/data/task reads copies of all of them",
    "scaling finetune": TASKS,
    "scaling evaluate": TASKS,
    "scaling compare": "tests/laws/test_compare.py runs it on tables",
    "scaling predict": TASKS,
    "scaling train decoder data=python size.width=100 start.vectors": "it reads vectors that are to be downloaded",
    "scaling look bert": "tests/inside/test_look.py runs it on encoders",
    "scaling probe": "tests/inside/test_probe.py runs it on runs that know the synthetic language",
    "scaling look marian": "tests/inside/test_look.py runs it on encoder-decoders",
    "pytest ": "it is a test",
    "python -m tests.interop.parity": "it takes minutes; tests/interop holds its figures",
    "python benchmarks/": "it measures the machine",
}
RUN_ALL_THE_SAME = ("--dry-run", "--local")  # of commands whose beginning is left out
SLOW = (
    "data.md",
    "inside.md",
    "laws.md",
    "long.md",
    "mixture.md",
    "report.md",
    "seq2seq.md",
    "studies.md",
    "sweeps.md",
    "tables.md",
)


def drawn_curves(seed: int) -> pd.DataFrame:
    """Curves of the quickstart's design, a row a logged loss."""
    from benchmarks.coverage.studies import KINDS, curve_design, draw_curves

    return pd.concat(
        pd.DataFrame(
            {
                "run": curve.run,
                "N": curve.N,
                "trunk": curve.trunk,
                "step": curve.steps,
                "loss": curve.losses,
                "tokens": curve.steps * curve.tokens_per_step,
                "lr": curve.rates[curve.steps - 1],
            }
        )
        for curve in draw_curves(curve_design(), KINDS["trunks differ most"], np.random.default_rng(seed))
    )


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

    def prepare(self, commands: list[str]) -> None:
        """What the commands take for granted."""
        text = "\n".join(commands)
        if "reviews.csv" in text:
            lines = [f"review {number}, {'of many words ' * 20}{number * 7}" for number in range(600)]
            pd.DataFrame({"review": lines}).to_csv("reviews.csv", index=False)
        if "trec/train.jsonl" in text:
            Path("trec").mkdir()
            kinds = ["ABBR", "ENTY", "DESC", "HUM", "LOC", "NUM"]
            for split in ("train", "test"):
                rows = [{"text": f"question {split} {number} ?", "label": kinds[number % 6]} for number in range(120)]
                pd.DataFrame(rows).to_json(f"trec/{split}.jsonl", orient="records", lines=True)
        if "train.de.gz" in text:
            for split, language in itertools.product(("train", "val"), ("de", "en")):
                with gzip.open(f"{split}.{language}.gz", "wt", encoding="utf-8") as file:
                    file.writelines(f"{split} satz {number} {language} .\n" for number in range(60))
        if "train.mrg.gz" in text:
            for split in ("train", "dev", "test"):
                with gzip.open(f"{split}.mrg.gz", "wt", encoding="utf-8") as file:
                    trees = (f"(S (NP (DT the) (NN {split}{number})) (VP (VBZ sits)))\n" for number in range(60))
                    file.writelines(trees)
        if "pairs.tsv" in text:
            Path("pairs.tsv").write_text("".join(f"satz {number} .\tsentence {number} .\n" for number in range(60)))
        if "curves.csv" in text:
            drawn_curves(5).to_csv("curves.csv", index=False)
        if "points.csv" in text:
            points = pd.read_csv(ROOT / "docs/results/overtraining/points.csv")
            points["error"] = 1 - 0.9 * (2.0 / points["loss"])
            spread = 1 + 0.005 * np.random.default_rng(0).standard_normal(len(points))
            points["accuracy"] = (0.25 + 0.7 / (1 + np.exp(4 * (points["loss"] - 2.6)))) * spread
            points["hellaswag_bpb"] = 0.3 + 0.2 * points["loss"] ** 1.5 * spread
            points["c4_loss"], points["code_loss"] = points["loss"], 0.7 * points["loss"] ** 1.2 * spread
            (self.folder / "pulled").mkdir()
            for name in ("points.csv", "pulled/points.csv"):
                points.to_csv(name, index=False)
        if re.search(r"\b(RUN|FOLDER|MODEL)\b", text):
            Path("mine.txt").write_text("\n\n".join(f"document {number} of words" * 5 for number in range(200)))
            told = ["mine.txt", "data.tokenizer=Byte", "data.validation=0.1"]
            self("data", "prepare", *told)
            told[0] = f"data={told[0]}"
            self.run = self("train", "decoder", *told, *BUDGET, "schedule.warmup=1").split()[1].rstrip(":")
        if "my_config.yaml" in text:
            Path("my_config.yaml").write_text("base: decoder\ndata: python\n")
        if "sentences.txt" in text:
            Path("sentences.txt").write_text("one sentence\nand a second one\n")
        if "quickstart" in text or "my_study" in text:
            for name in ("quickstart.yaml", "my_study.yaml"):
                shutil.copy(ROOT / "tests/studies/small.yaml", name)
        if "scaling report quickstart" in text and "scaling study" not in text:
            self("study", "quickstart.yaml")
            shutil.copytree("runs", "kept")
            shutil.move("kept", "runs/quickstart")

    def small(self, command: str) -> list[str]:
        """The words of a command of `scaling`, at a small size and with what its names stand for."""
        line = [self.named(word) for word in words(command)[1:]]
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

    def named(self, word: str) -> str:
        return {"RUN": self.run, "FOLDER": f"{self.run}-hf"}.get(word, word)


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
    return next((start for start in LEFT_OUT if command.startswith(start)), None)


def commands(document: Path) -> list[str]:
    return [command for block in blocks(document) for command in block.commands]


RUN_ELSEWHERE = ("first_hour.md", "README.md")  # test_first_hour.py runs the one; those of results have whole studies
CASES = [
    pytest.param(document, id=document.name, marks=[pytest.mark.slow] if document.name in SLOW else [])
    for document in DOCUMENTS
    if document.name not in RUN_ELSEWHERE and not all(map(left_out, commands(document)))
]


def test_every_command_that_is_not_run_has_a_reason_that_holds() -> None:
    every = [command for document in DOCUMENTS for command in commands(document)]
    assert [start for start in LEFT_OUT if not any(left_out(command) == start for command in every)] == []


@pytest.mark.parametrize("document", CASES)
def test_the_commands_of_a_document_run(document: Path, scene: Scene) -> None:
    answers = {command: line for block in blocks(document) for command, line in block.answers.items()}
    for block in blocks(document):
        if block.file is not None:  # a class of the package joins its slot, as one of the reader's own does
            text = re.sub(
                r"(class \w+\(nn\.Module\):\n)", rf'\1    slot = "{Path(block.file).parent.name}"\n', block.text
            )
            Path(Path(block.file).name).write_text(text)
    asked = [command for command in commands(document) if not left_out(command)]
    scene.prepare(asked)
    for command in asked:
        line, _, file = command.partition(" < ")
        if file:
            scene.monkeypatch.setattr("sys.stdin", io.StringIO(Path(file).read_text()))
        if command in answers:
            assert main(scene.small(line)) in (0, BAD_INPUT)
            assert answers[command] in scene.capfd.readouterr().err.splitlines()
        else:
            scene(*scene.small(line))
