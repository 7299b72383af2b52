"""What kept pages claim is what their own printed numbers show."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scaling.cli import main
from scaling.laws.report import coverage, held_out
from scaling.reports.keep import fit_again

RESULTS = Path(__file__).parents[2] / "docs" / "results"
KEPT = sorted(path.parent for path in RESULTS.glob("*/fit.json"))
ROW = re.compile(
    r"\| ([\d.]+) \| [\d.]+ \| [\d.]+ to [\d.]+ \| ([\d.]+) to ([\d.]+)(?:\\\*)? \| (yes|no) \| ([+-][\d.]+)% \|"
)
NUMBER = re.compile(r"(\d+\.?\d*)")
each = pytest.mark.parametrize("folder", KEPT, ids=lambda folder: folder.name)


def fitted(folder: Path):
    return json.loads((folder / "fit.json").read_text(encoding="utf-8"))


@each
def test_a_kept_page_counts_the_intervals_it_prints(folder):
    document, text = fitted(folder), (folder / "README.md").read_text(encoding="utf-8")
    rows = ROW.findall(text)
    tested = document["held_out"]
    assert len(rows) == tested["n"]
    inside = [float(low) <= float(loss) <= float(high) for loss, low, high, _, _ in rows]
    assert inside == [word == "yes" for _, _, _, word, _ in rows]
    assert sum(inside) == round(tested["covered"] * tested["n"])
    covered = coverage(tested)
    assert covered is not None
    assert covered in text
    largest = max(abs(float(error)) for *_, error in rows)
    assert largest == pytest.approx(100 * abs(tested["largest_relative_error"]), abs=0.006)


@each
def test_a_kept_page_shows_the_table_of_its_fit(folder):
    document = fitted(folder)
    names = dict(re.findall(r'data-run="(\w+)"><th scope="row">([^<]*)<', page := (folder / "index.html").read_text()))
    table = held_out(document, names)
    assert table is not None
    assert table.markdown() in (folder / "README.md").read_text(encoding="utf-8")
    for title in table.titles:
        assert f">{title}</th>" in page
    for row in table.rows:
        for cell in row[1:]:
            assert f">{cell.replace('-', '−') if cell[0] == '-' else cell}</td>" in page
    assert "interval for a new run" not in page  # the words of a page that printed the other interval


def test_the_list_of_kept_results_says_what_each_found():
    text = (RESULTS / "README.md").read_text(encoding="utf-8")
    for name, claim in re.findall(r"\[(\w+)\]\(\w+/README\.md\).*within ([\d.]+)%", text):
        worst = 100 * abs(fitted(RESULTS / name)["held_out"]["largest_relative_error"])
        assert round(worst, len(claim.partition(".")[2])) == float(claim)
    floor = fitted(RESULTS / "overtraining")["intervals"]["E"]
    assert f"{floor['estimate']:.3f} [{floor['low']:.3f}, {floor['high']:.3f}]" in text
    beta = fitted(RESULTS / "encoder_decoder_span_corruption")["intervals"]["beta"]
    assert f"β is anywhere from {beta['low']:.2f} to {beta['high']:.2f}" in text


def test_the_quickstart_under_other_seeds_has_the_tables_of_what_is_kept():
    text = (RESULTS / "quickstart.md").read_text(encoding="utf-8").splitlines()
    command = [sys.executable, "benchmarks/seeds.py", "--keep", str(RESULTS / "quickstart"), "--done"]
    done = subprocess.run(command, cwd=RESULTS.parents[1], capture_output=True, text=True, check=True)
    tables = [line for line in done.stdout.splitlines() if line]
    assert len(tables) > 20
    assert [line for line in tables if line not in text] == []


@pytest.mark.slow
@each
def test_a_kept_report_comes_out_the_same_when_it_is_fitted_again(folder, tmp_path):
    again = shutil.copytree(folder, tmp_path / folder.name)
    fit_again(again)
    assert (again / "points.csv").read_bytes() == (folder / "points.csv").read_bytes()
    # Along a flat valley the end of an interval moves by a thousandth from one kind of processor to another.
    before, after = (NUMBER.split((place / "README.md").read_text(encoding="utf-8")) for place in (folder, again))
    assert after[::2] == before[::2]
    assert [*map(float, after[1::2])] == pytest.approx([*map(float, before[1::2])], rel=1e-3, abs=0.01)
    old, new = fitted(folder), fitted(again)
    assert new["estimates"] == pytest.approx(old["estimates"], rel=1e-6)
    assert new["held_out"]["covered"] == old["held_out"]["covered"]


def test_a_folder_that_is_no_kept_report_is_refused(tmp_path, capsys):
    (tmp_path / "index.html").write_text("a page")
    assert main(["report", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "is no kept report" in err
    assert err.count("\n") == 1


@pytest.mark.slow
def test_the_kept_table_is_printed_again_byte_for_byte(tmp_path, monkeypatch):
    kept = tmp_path / "docs" / "results"
    shutil.copytree(RESULTS / "narang2021", kept / "narang2021")
    monkeypatch.chdir(tmp_path)
    points = "docs/results/narang2021/points.csv"
    assert main(["table", "narang2021_cpu", "--from", points, "--keep", "docs/results/narang2021.md"]) == 0
    for name in ("narang2021.md", "narang2021/points.csv"):
        assert (kept / name).read_bytes() == (RESULTS / name).read_bytes()
