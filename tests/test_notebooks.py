"""Each notebook asks one question in thin cells, and runs from top to bottom."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = (ROOT / "notebooks", ROOT / "examples" / "published")
NOTEBOOKS = [path for folder in FOLDERS for path in sorted(folder.glob("*.ipynb"))]
LONGEST = 16
MAY_IMPORT = {"scaling", "numpy", "pandas", "matplotlib"}
WITH_LIGHTNING = {"04_lightning": {"lightning", "torch"}}


def cells(path, kind):
    document = json.loads(path.read_text(encoding="utf-8"))
    return [cell for cell in document["cells"] if cell["cell_type"] == kind]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_asks_one_question_in_thin_cells(path):
    title = cells(path, "markdown")[0]["source"]
    assert "".join(title).splitlines()[0].endswith("?")
    for cell in cells(path, "code"):
        assert len("".join(cell["source"]).splitlines()) <= LONGEST


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_imports_nothing_of_ours_but_scaling(path):
    imported = set()
    for cell in cells(path, "code"):
        for node in ast.walk(ast.parse("".join(cell["source"]))):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(node.module)
    assert "scaling" in imported
    assert {name for name in imported if name.startswith("scaling")} == {"scaling"}
    beside = {file.stem for file in path.parent.glob("*.py")}
    allowed = MAY_IMPORT | WITH_LIGHTNING.get(path.stem, set()) | beside | sys.stdlib_module_names
    assert {name.partition(".")[0] for name in imported} <= allowed


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_outputs_are_of_a_clean_run(path):
    text = path.read_text(encoding="utf-8")
    assert "Traceback" not in text
    assert str(ROOT) not in text
    outputs = [output for cell in cells(path, "code") for output in cell["outputs"]]
    assert [output["text"] for output in outputs if output.get("name") == "stderr"] == []
    counts = [cell["execution_count"] for cell in cells(path, "code")]
    assert counts == list(range(1, len(counts) + 1))


@pytest.mark.slow
def test_every_notebook_runs():
    command = [sys.executable, "-m", "pytest", "--nbmake", "-q", "-p", "no:cacheprovider", *map(str, FOLDERS)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
