"""Each notebook asks one question in thin cells; `make notebooks` runs them from top to bottom."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = (ROOT / "notebooks", ROOT / "examples" / "published")
NOTEBOOKS = [path for folder in FOLDERS for path in sorted(folder.glob("*.ipynb"))]
LONGEST = 16


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_asks_one_question_in_thin_cells_of_a_clean_run(path):
    text = path.read_text(encoding="utf-8")
    first, *cells = json.loads(text)["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert "".join(first["source"]).splitlines()[0].endswith("?")
    assert max(len("".join(cell["source"]).splitlines()) for cell in code) <= LONGEST
    assert not re.search(r"\b(from|import) scaling\.", text), "the public names suffice"
    assert "Traceback" not in text
    assert str(ROOT) not in text
    assert [output["text"] for cell in code for output in cell["outputs"] if output.get("name") == "stderr"] == []
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
