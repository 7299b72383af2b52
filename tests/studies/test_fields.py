"""A mistake in any field of a study is one line with its place, from `plan` and `study`, before anything trains."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import scaling
from scaling.base.errors import ScalingError
from scaling.cli import main
from scaling.studies import estimate
from scaling.studies.question import read

SMALL = yaml.safe_load((Path(__file__).parent / "small.yaml").read_text())
AT = {"grid": {"size": [{"width": 8, "heads": 1}], "train.tokens": ["2k"]}, "law": None}

# The field, what it may not say, and what the line says. tests/test_bad_values.py tries any value under any key.
WRONG = [
    ("base", "decodr", "base='decodr': there is no model 'decodr'; did you mean 'decoder'?"),
    ("grid", {"kind": "IsoFlop"}, "did you mean 'IsoFLOP'?"),
    ("grid", None, "grid: a study needs it"),
    ("law", ["chinchilla", "chinchila"], "law.1='chinchila': there is no such law; did you mean 'chinchilla'?"),
    ("target", {"N": 1e9}, "target: chinchilla is a law of N, D; add D"),
    ("define", {"optimiser": "AdamW"}, "the setup has no such key; did you mean 'optimizer'?"),
    ("resources", {"gpus": 1.5}, "resources.gpus=1.5: expected a fraction of one GPU, or a whole number"),
    ("minutes", 5, "minutes=5: there is no smaller scale"),
    ("at", {"paper": {**AT, "minutes": -1}}, "at.paper.minutes=-1: expected a number above 0"),
    ("tasks", ["rank_tagz"], "did you mean 'rank_tags'"),
    ("tagret", {"N": 1}, "did you mean 'target'?"),
]


def write(folder: Path, **changes: object) -> Path:
    path = folder / "asked.yaml"
    path.write_text(yaml.safe_dump({**SMALL, **changes}, sort_keys=False))
    return path


def refused(capsys, *words: object) -> str:
    assert main([str(word) for word in words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err


@pytest.mark.parametrize(("field", "value", "line"), WRONG, ids=lambda value: str(value)[:40])
def test_a_mistake_in_a_field_is_one_line(field, value, line, tmp_path, capsys):
    err = refused(capsys, "study", write(tmp_path, **{field: value}), f"runs={tmp_path / 'runs'}")
    assert line in err
    assert field in err
    assert not (tmp_path / "runs").exists()


# Changes of keys of the runs, the text of the line at fault, and what is reported.
PLACES = {
    "a size of no key": ({"grid": {"size": [{"widht": 8}]}}, "widht: 8", "grid.size.widht=8: a size has no such key"),
    "held out": ({"held_out": {"train.tokens": [3]}}, "- 3", "held_out.train.tokens=3: less than one batch"),
    "an axis that changes nothing": ({"grid": {"log.every": [1, 2]}}, "grid:", "grid: two cells are one run"),
    "too few runs": ({"grid": {"seed": [1]}}, "grid:", "grid: 1 different point to fit 5 parameters"),
    "at a scale": ({"at": {"paper": {"set": {"seed": "a"}}}}, "seed: a", "at.paper.set.seed='a': expected a whole"),
}


@pytest.mark.parametrize("name", PLACES)
def test_a_mistake_in_a_key_of_the_runs_has_its_line_and_in_a_dict_its_key(name, tmp_path, capsys):
    changes, text, expected = PLACES[name]
    path, at = write(tmp_path, **changes), ["--at", "paper"] if "at" in changes else []
    words = ["train.tokens=8k"] if name == "too few runs" else []
    err = refused(capsys, "study", path, *at, *words, f"runs={tmp_path / 'runs'}")
    (place,) = re.findall(rf"^scaling: {re.escape(str(path))}:(\d+): {re.escape(expected)}.*\n$", err)
    assert text in path.read_text().splitlines()[int(place) - 1]
    with pytest.raises(ScalingError, match=f"^the study: {re.escape(expected)}"):
        scaling.plan({**SMALL, **changes}, *words, at="paper" if at else None, runs=str(tmp_path / "runs"))


def test_mistakes_outside_the_file_are_one_line_too(tmp_path, capsys, monkeypatch):
    path, runs = write(tmp_path), f"runs={tmp_path / 'runs'}"
    assert "scaling: command line: optimizer.lr=-1: expected" in refused(capsys, "plan", path, "optimizer.lr=-1", runs)
    assert "did you mean 'cola'" in refused(capsys, "study", path, "--tasks", "col", runs)
    with pytest.raises(ScalingError, match="at='paper': the study has no such scale; choose from small"):
        read(str(write(tmp_path, at={"small": AT})), "paper")
    monkeypatch.setenv("SCALING_DATA", str(tmp_path / "none"))
    path = write(tmp_path, set={"data": "python", "size.vocabulary": None})
    for more in ([], ["--adaptive", "E ± 0.1"]):
        assert "prepare" in refused(capsys, "study", path, *more, runs)
    assert not (tmp_path / "runs" / "store").exists()


def test_a_study_is_planned_from_a_dict_as_from_its_file(tmp_path, monkeypatch):
    monkeypatch.setattr(estimate, "calibrate", lambda _: None)  # nothing is timed
    file, named = (
        scaling.plan(source, "seed=5", runs=str(tmp_path)) for source in (write(tmp_path), {"name": "asked", **SMALL})
    )
    assert named.to_json()["study"] == file.to_json()["study"] == "asked-seed-5"
    assert list(named.runs["run"]) == list(file.runs["run"])
    assert read(SMALL).name == "study"
    assert read(str(write(tmp_path)), None, ["log.wandb=disabled"]).name == "asked"  # it changes no result


def test_what_is_right_is_taken(tmp_path):
    right = {"target": {"N": "1B", "D": 2e10}, "define": {"noise": 0.002}, "resources": {"gpus": 2}, "minutes": 5}
    path = str(write(tmp_path, **right, at={"small": AT, "paper": {"target": {"C": "1T"}}}))
    question = read(path)
    assert (question.target, question.define) == ({"N": 1e9, "D": 2e10}, {"noise": "0.002"})
    assert (question.minutes, question.resources) == (5, {"gpus": 2})
    assert (read(path, "paper").target, read(path, "paper").laws) == ({"C": 1e12}, ["chinchilla"])
