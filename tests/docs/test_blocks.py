"""What the documents say is there, and every command in a block of them runs, in one folder with a ledger of its own.

A document's commands are run in its order, at a small size: words that make data, models and budgets small are added to
them, and the names that stand for something of the reader's (RUN, points.csv, my_study.yaml) are there. A file that a
document itself shows, as a block that begins with `# mine.py`, is written from it. What cannot run here is named with
its reason.
"""

import ast
import functools
import gzip
import importlib
import io
import json
import pkgutil
import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import scaling
import scaling.laws
from scaling.base.errors import BAD_INPUT, ScalingError
from scaling.verbs import function_name
from scaling.verbs.command_line import main, named, parsed
from scaling.verbs.verb import verb

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").rglob("*.md"))  # tests/examples runs them
PROGRAMS = ("scaling", "wandb", "python", "make", "open", "pip", "pytest")
FENCE = re.compile(r"^```\w*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
INDENTED = re.compile(r"(?:^ {4}.*\n|(?<=\n)\n(?= {4}))+", re.MULTILINE)
COMMAND = re.compile(rf"^(?:\$ )?(?:\.venv/bin/)?((?:{'|'.join(PROGRAMS)}) .*)$")
SPELLED = re.compile(r"`(?:\.venv/bin/)?(scaling [a-z]+(?: [^`\n]*)?)`")  # within sentences and tables
ANSWER = re.compile(r"^\$ (.*)\n(scaling: .*)$", re.MULTILINE)  # a refusal or a remark, below its command
FILE = re.compile(r"# ([\w./-]+\.(?:ya?ml|py|csv))\b")


def blocks(document: Path) -> list[str]:
    """The blocks of a document, fenced or indented."""
    text = document.read_text(encoding="utf-8")
    fenced = [(match.start(), match[1]) for match in FENCE.finditer(text)]
    plain = FENCE.sub(lambda match: re.sub(r"[^\n]", "-", match[0]), text)
    found = [(match.start(), re.sub(r"^ {4}", "", match[0], flags=re.MULTILINE)) for match in INDENTED.finditer(plain)]
    return [text for _, text in sorted(fenced + found)]


def commands(document: Path) -> list[str]:
    """The commands in a document's blocks, those over several lines as one."""
    lines = "\n".join(blocks(document)).replace("\\\n", " ").splitlines()
    return [without_remark(match[1]) for line in lines if (match := COMMAND.match(line))]


def words(command: str) -> list[str]:
    return shlex.split(command, comments=True)


def without_remark(command: str) -> str:
    """A command up to the remark behind it: a `#`, or a column of its own, three spaces on."""
    quoted = re.sub(r"'[^']*'|\"[^\"]*\"", lambda match: "_" * len(match[0]), command)
    remark = re.search(r"\s#|\s{3,}", quoted)
    return command[: remark.start()].rstrip() if remark else command.rstrip()


LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)[^)]*\)")
DIRECTIVE = re.compile(r"^::: (\S+)\n    options:\n      members: \[(.*)\]$", re.MULTILINE)
EVERY = [*DOCUMENTS, *EXAMPLES]


def understand(line: str, stand_ins: Any = ()) -> None:
    """Read the words of a command as the command line does, up to the call of the verb."""
    name, rest = named(words(line)[1:])
    function = getattr(scaling, function_name(name))
    arguments, options, _ = parsed(name, function, [word for word in rest if word not in stand_ins])
    unrun: Any = functools.wraps(function)(lambda *_, **__: None)
    verb(unrun)(*arguments, **options)


@pytest.mark.parametrize("path", EVERY, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_links_of_a_document_lead_somewhere_and_its_commands_are_understood(path):
    missing = [link for link in LINK.findall(path.read_text()) if not (path.parent / link).exists()]
    assert not missing
    for command in commands(path):
        if command.startswith("scaling "):
            understand(re.split(r" [<>] ", command)[0])
    for command in SPELLED.findall(path.read_text(encoding="utf-8")):
        try:
            understand(command, {"…"})
        except ScalingError as error:  # a sentence may leave out what it is not about, as `scaling fit --format` does
            if "expected " not in error.what or "one more" in error.what:
                raise


def test_the_names_of_this_package_in_pages_and_in_the_programs_beside_them_are_there():
    for path in EVERY:
        for name in re.findall(r"`(scaling(?:\.\w+)+)\(", path.read_text(encoding="utf-8")):
            pkgutil.resolve_name(name)
    for path in sorted((ROOT / "docs").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("scaling"):
                for name in node.names:
                    pkgutil.resolve_name(f"{node.module}.{name.name}")


@pytest.mark.parametrize(
    ("part", "package", "elsewhere"), [(0, scaling, {"laws", "__version__"}), (1, scaling.laws, {"Fit"})]
)
def test_the_page_of_the_api_describes_every_public_name(part, package, elsewhere):
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8").split("## `scaling.laws`")[part]
    described = [(module, name) for module, members in DIRECTIVE.findall(text) for name in members.split(", ")]
    assert sorted(name for _, name in described) == sorted({*package.__all__} - elsewhere)
    for module, name in described:
        assert getattr(importlib.import_module(module), name) is getattr(package, name), (module, name)


def test_the_table_of_attentions_share_is_what_is_counted(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    build_cost = importlib.import_module("build_cost")
    table = (ROOT / "docs" / "cost.md").read_text().split(build_cost.BEGIN)[1].split(build_cost.END)[0]
    written = {line.split(" | ")[0].strip("| "): line.strip("| ").split(" | ")[1:] for line in table.splitlines()}
    (counted,) = build_cost.rows(["small"], [512, 131072])
    cells = counted.strip("| ").split(" | ")[1:]
    assert cells == [written["small"][build_cost.LENGTHS.index(length)] for length in (512, 131072)]
    assert [name for name in written if name in build_cost.SIZES] == build_cost.SIZES


PYTHON = [
    *("data.corpus.reach=standard", "data.corpus.limit=400k", "data.validation=0.3"),
    *("data.tokenizer.vocabulary=500", "data.tokenizer.sample=200k"),
]
BUDGET = ["trainer.max_steps=2", "train.batch=2", "evaluate.windows=2", "evaluate.points=1", "log.wandb=disabled"]
SIZE = ["size.width=8", "size.layers=1", "size.heads=1", "size.length=16", "schedule.warmup=1"]
# What is added to a verb's words, after the words that ask for it.
SMALL: dict[tuple[str, ...], list[str]] = {
    ("train",): [*BUDGET, "schedule.warmup=1"],
    ("table", "--train"): [*BUDGET, *SIZE, "seeds=1", "data=synthetic", "--workers", "1"],
    ("table", "narang2021_cpu"): ["--row", "Vanilla Transformer", "--row", "Swish"],
    ("decide", "narang2021_cpu"): ["--row", "Vanilla Transformer", "--row", "Swish"],
    ("landscape",): ["--windows", "2"],
    ("sweep", "sweeps/learning_rate.yaml", "--local"): [*BUDGET, *SIZE, "--count", "2"],
    ("sweep", "sweeps/ladder.yaml"): ["log.wandb=disabled", "evaluate.points=1", "--count", "1"],  # it sets the sizes
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
SLOW = re.compile(r"(data|inside|laws|long|mixture|report|seq2seq|studies|sweeps|tables)\.md")


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
    if "--dry-run" in command or "--local" in command:
        return None
    return next((start for start in STARTS if command.startswith(start)), None)


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
    answers: dict[str, str] = {}
    for block in blocks(document):
        answers |= {without_remark(command): line for command, line in ANSWER.findall(block)}
        if file := FILE.match(block):  # a class of the package joins its slot, as one of the reader's own does
            slot = f'    slot = "{Path(file[1]).parent.name}"\n'
            Path(Path(file[1]).name).write_text(re.sub(r"(class \w+\(nn\.Module\):\n)", rf"\1{slot}", block))
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


# `make notebooks` runs them from top to bottom.
NOTEBOOKS = sorted([*(ROOT / "notebooks").glob("*.ipynb"), *(ROOT / "examples" / "published").glob("*.ipynb")])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_the_output_of_a_clean_run(path):
    text = path.read_text(encoding="utf-8")
    code = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert not re.search(r"Traceback|\b(from|import) scaling\.", text), "the public names suffice"
    assert str(ROOT) not in text
    assert [output["text"] for cell in code for output in cell["outputs"] if output.get("name") == "stderr"] == []
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
