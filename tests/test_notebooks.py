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
def test_a_notebook_asks_one_question_in_thin_cells_of_a_clean_run(path):
    assert "".join(cells(path, "markdown")[0]["source"]).splitlines()[0].endswith("?")
    code = cells(path, "code")
    assert max(len("".join(cell["source"]).splitlines()) for cell in code) <= LONGEST
    imported = set()
    for node in ast.walk(ast.parse("\n".join("".join(cell["source"]) for cell in code))):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module)
    assert {name for name in imported if name.startswith("scaling")} == {"scaling"}
    beside = {file.stem for file in path.parent.glob("*.py")}
    allowed = MAY_IMPORT | WITH_LIGHTNING.get(path.stem, set()) | beside | sys.stdlib_module_names
    assert {name.partition(".")[0] for name in imported} <= allowed
    text = path.read_text(encoding="utf-8")
    assert "Traceback" not in text
    assert str(ROOT) not in text
    assert [output["text"] for cell in code for output in cell["outputs"] if output.get("name") == "stderr"] == []
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))


@pytest.mark.slow
def test_every_notebook_runs():
    command = [sys.executable, "-m", "pytest", "--nbmake", "-q", "-p", "no:cacheprovider", *map(str, FOLDERS)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
