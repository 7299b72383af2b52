"""Reading, counting, and every kind of points that is refused: one line that says what and how to fix."""

import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.base.errors import ScalingError
from scaling.laws.points import Points, load_points

RUNS = {"run": ["a", "b", "c"], "N": [1e6, 2e6, 4e6], "D": [1e8, 2e8, 4e8], "loss": [4.0, 3.5, 3.1]}


def as_csv(path, columns):
    rows = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(rows) + "\n")
    return path


def refused(call) -> str:
    with pytest.raises(ScalingError) as caught:
        call()
    line = str(caught.value)
    assert "\n" not in line
    assert caught.value.fix, "every refusal says how to fix it"
    assert caught.value.code == 2
    return line


def test_every_format_gives_the_same_points(tmp_path):
    import pandas

    frame = pandas.DataFrame(RUNS)
    frame.to_parquet(tmp_path / "points.parquet")
    (tmp_path / "points.jsonl").write_text(frame.to_json(orient="records", lines=True))
    as_csv(tmp_path / "points.csv", RUNS)
    tables = [
        load_points(tmp_path / "points.csv"),
        load_points(tmp_path / "points.jsonl"),
        load_points(tmp_path / "points.parquet"),
        load_points(tmp_path),
        load_points(frame),
        load_points(frame.to_dict(orient="records")),
        load_points(RUNS),
    ]
    for table in tables:
        assert list(table["run"]) == RUNS["run"]
        for name in ("N", "D", "loss"):
            assert np.array_equal(table.numbers(name), RUNS[name])


@given(st.lists(st.sampled_from(["finished", "diverged", "pruned", "failed", "stopped", "out_of_memory"]), max_size=30))
def test_every_planned_run_is_used_excluded_or_failed(states):
    columns = {"run": [f"r{i}" for i in range(len(states))], "N": list(range(1, len(states) + 1)), "status": states}
    points = load_points(columns)
    assert points.planned == len(states) == points.used + points.excluded + points.failed
    assert points.used == states.count("finished")
    assert points.excluded == states.count("diverged") + states.count("pruned")
    assert sum(map(int, re.findall(r"\d+", points.count()))) == len(states)


def test_a_diverged_run_needs_no_loss_and_rows_left_out_by_a_mask_are_excluded():
    points = load(loss=[4.0, None, 3.1], status=["finished", "diverged", "finished"])
    points.numbers("loss")
    assert points.count() == "2 points, 1 excluded"
    masked = load().where(np.array([True, False, True]))
    assert (masked.used, masked.excluded, masked.planned) == (2, 1, 3)


def test_columns_are_renamed_computed_and_defined():
    points = load_points(
        {"params": [1.0, 2.0], "tokens": [10.0, 20.0], "final_loss": [3.0, 2.0]},
        rename={"N": "params", "D": "tokens", "loss": "final_loss", "C": "6ND", "M": "D/N"},
        define={"N": "non-embedding"},
    )
    assert np.array_equal(points["C"], [60.0, 240.0])
    assert np.array_equal(points["M"], [10.0, 10.0])
    assert points.definition("C") == "6ND"
    assert points.definition("N") == "non-embedding"
    assert points.definition("D") == "not stated"


def test_seeds_of_one_scale_and_rows_along_a_training_are_not_duplicates():
    assert len(load_points({"N": [1, 1], "D": [2, 2], "loss": [3.0, 3.1], "seed": [0, 1]})) == 2
    assert len(load_points({"run": ["a", "a"], "N": [1, 1], "D": [2, 4], "loss": [3.0, 2.9]})) == 2


def load(**columns):
    return load_points({**RUNS, **columns})


REFUSED = {
    "an unknown column": (lambda: load()["lss"], "did you mean 'loss'"),
    "a column computed from itself": (lambda: load_points(RUNS, rename={"C": "M*N", "M": "C/N"}), "from itself"),
    "a choice of rows that is not there": (lambda: load_points(RUNS, where=["rnu=a"]), "did you mean 'run'"),
    "a choice of a value that is not there": (lambda: load_points(RUNS, where=["run=A "]), "did you mean 'a'"),
    "a status nobody knows": (lambda: load(status=["finished", "divreged", "failed"]), "'diverged'"),
    "two validation sets": (lambda: load(validation=["c4", "c4", "pile"]), "mixes 'c4' and 'pile'"),
    "a law whose columns are absent": (lambda: load().require(("N", "U"), 2), "unique training tokens"),
    "columns of different length": (lambda: Points({"N": np.ones(2), "D": np.ones(3)}), "differ in length"),
    "a mask of the wrong length": (lambda: load().where(np.array([True])), "mask"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_refuses(kind):
    call, said = REFUSED[kind]
    assert said in refused(call)


FILES = {
    "ragged.csv": ("N,loss\n1,2\n3\n", "ragged.csv:3: has 1 cells under a header of 2"),
    "word.csv": ("N,loss\n1,2\nmany,3\n", "word.csv:3: N='many'"),
    "twice.csv": ("N,N\n1,2\n", "two columns are called 'N'"),
    "empty.csv": ("", "holds no rows"),
    "header.csv": ("N,loss\n", "holds no rows"),
    "quote.csv": ('N,loss\n1,"2\n', "is not CSV"),
    "binary.csv": (b"N,loss\n\xff\xfe,\x80\n", "not text in UTF-8"),
    "broken.jsonl": ('{"N": 1, "loss": 2}\n{"N": \n', "broken.jsonl:2: is not JSON"),
    "list.jsonl": ("[1, 2]\n", "list.jsonl:1: is not a record"),
    "broken.parquet": ("not parquet", "is not parquet"),
    "points.txt": ("N loss", "no reader for .txt"),
    "word.cvs": (None, "no reader for .cvs"),
    "wrod.csv": (None, "did you mean 'word.csv'?"),
}


def test_an_unreadable_file_is_one_line_with_its_place(tmp_path):
    for name, (content, _) in FILES.items():
        if content is not None:
            (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    for name, (_, what) in FILES.items():
        line = refused(lambda name=name: load_points(tmp_path / name))
        assert what in line, name
        assert name in line


def test_nothing_heavy_is_imported_until_it_is_used():
    heavy = ["torch", "lightning", "pandas", "pyarrow", "matplotlib", "rich", "scipy.stats"]
    code = f"import sys, scaling.laws.report; print(*(name for name in {heavy} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
