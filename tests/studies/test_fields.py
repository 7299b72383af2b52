"""A mistake in any field of a study is one line with its place, from `plan` and `study`, before anything trains."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import scaling
from scaling.base.errors import ScalingError
from scaling.cli import main
from scaling.studies.question import read

SMALL = yaml.safe_load((Path(__file__).parent / "small.yaml").read_text())
AT = {"grid": {"size": [{"width": 8, "heads": 1}], "train.tokens": ["2k"]}, "law": None}

# The field, what it may not say, and what the line says.
WRONG = [
    ("question", {"from": 1}, "question: expected text"),
    ("base", "decodr", "base='decodr': there is no model 'decodr'; did you mean 'decoder'?"),
    ("set", 5, "set=5: expected keys with values"),
    ("grid", 5, "grid=5: expected axes"),
    ("grid", {}, "the grid is empty"),
    ("grid", {"kind": "IsoFlop"}, "did you mean 'IsoFLOP'?"),
    ("grid", None, "grid: a study needs it"),
    ("rate", {"kind": "Power", "lr": "x", "parameters": 1}, "rate.lr"),
    ("law", "chinchila", "did you mean 'chinchilla'?"),
    ("law", ["chinchilla", "chinchilla"], "named twice"),
    ("target", {"N": 0, "D": 1}, "target.N=0: expected a number above 0"),
    ("target", {"N": float("inf"), "D": 1}, "target.N=inf: expected a number"),
    ("target", {"M": 1}, "target.M=1: chinchilla is a law of N, D"),
    ("target", {"N": 1e9}, "target: chinchilla is a law of N, D; add D"),
    ("suppose", {"F": 1}, "suppose.F=1: chinchilla has no such parameter"),
    ("suppose", {"noise": 0}, "suppose.noise=0: expected a number above 0"),
    ("define", {"optimiser": "AdamW"}, "the setup has no such key; did you mean 'optimizer'?"),
    ("resources", {"gpu": 1}, "resources.gpu=1: a run's resources has no such key; did you mean 'gpus'?"),
    ("resources", {"gpus": 1.5}, "resources.gpus=1.5: expected a fraction of one GPU, or a whole number"),
    ("minutes", 5, "minutes=5: there is no smaller scale"),
    ("at", {"paper": 5}, "at.paper=5: expected fields of a study"),
    ("at", {"paper": {"gird": {}}}, "at.paper.gird: a study has no such key; did you mean 'grid'?"),
    ("at", {"paper": {**AT, "minutes": -1}}, "at.paper.minutes=-1: expected a number above 0"),
    ("at", {"a b": AT}, "is no name of a scale"),
    ("tagret", {"N": 1}, "did you mean 'target'?"),
]


def write(folder: Path, **changes: object) -> Path:
    path = folder / "asked.yaml"
    path.write_text(yaml.safe_dump({**SMALL, **changes}, sort_keys=False))
    return path


@pytest.mark.parametrize(("field", "value", "line"), WRONG, ids=lambda value: str(value)[:40])
def test_a_mistake_in_a_field_is_one_line(field, value, line, tmp_path, capsys):
    path = write(tmp_path, **{field: value})
    verb = "plan" if field == "law" else "study"
    assert main([verb, str(path), f"runs={tmp_path / 'runs'}", "log.wandb=disabled"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert line in err
    assert field in err
    assert not (tmp_path / "runs").exists()


# Changes of keys of the runs, the text of the line at fault, and what is reported.
PLACES = {
    "an axis of no key": ({"grid": {"train.tokns": ["1k"]}}, "- 1k", "grid.train.tokns='1k': train has no such key"),
    "a size of no key": ({"grid": {"size": [{"widht": 8}]}}, "widht: 8", "grid.size.widht=8: a size has no such key"),
    "held out": ({"held_out": {"train.tokens": [3]}}, "- 3", "held_out.train.tokens=3: less than one batch"),
    "for all runs": ({"set": {"optimizer.lr": -1}}, "optimizer.lr: -1", "set.optimizer.lr=-1: expected a number above"),
    "in one of several grids": ({"grid": [{"seed": [1]}, {"seed": ["a"]}]}, "- a", "grid.1.seed='a': expected a whole"),
    "an axis that changes nothing": ({"grid": {"log.every": [1, 2]}}, "grid:", "grid: two cells are one run"),
    "too few runs": ({"grid": {"seed": [1]}}, "grid:", "grid: 1 different point to fit 5 parameters"),
    "at a scale": ({"at": {"paper": {"set": {"seed": "a"}}}}, "seed: a", "at.paper.set.seed='a': expected a whole"),
}


@pytest.mark.parametrize("name", PLACES)
def test_a_mistake_in_a_key_of_the_runs_has_its_line(name, tmp_path, capsys):
    changes, text, expected = PLACES[name]
    changes = {key: {**SMALL[key], **value} if key == "set" else value for key, value in changes.items()}
    path, at = write(tmp_path, **changes), ["--at", "paper"] if "at" in changes else []
    words = ["train.tokens=8k"] if name == "too few runs" else []
    assert main(["study", str(path), *at, *words, f"runs={tmp_path / 'runs'}"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (place,) = re.findall(rf"^scaling: {re.escape(str(path))}:(\d+): {re.escape(expected)}.*\n$", err)
    assert text in path.read_text().splitlines()[int(place) - 1]
    with pytest.raises(ScalingError, match=f"^the study: {re.escape(expected)}"):
        scaling.plan({**SMALL, **changes}, *words, at="paper" if at else None, runs=str(tmp_path / "runs"))


def test_a_mistake_on_the_command_line_is_reported_as_one(tmp_path, capsys):
    assert main(["plan", str(write(tmp_path)), "optimizer.lr=-1", f"runs={tmp_path}"]) == 2
    assert capsys.readouterr().err.startswith("scaling: command line: optimizer.lr=-1: expected")


def test_data_that_are_not_prepared_are_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("SCALING_DATA", str(tmp_path / "none"))
    path = write(tmp_path, set={"data": "python", "size.vocabulary": None})
    for more in ([], ["--adaptive", "E ± 0.1"]):
        assert main(["study", str(path), *more, f"runs={tmp_path / 'runs'}"]) == 2
        err = capsys.readouterr().err
        assert "prepare" in err
        assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"name": "a/b"}, "^the study: name='a/b': expected letters"),
        ({"grid": {"seed": [{1, 2}]}}, r"^the study: grid.seed.0=\{1, 2\}: expected text, a number"),
        ({"law": "chinchila"}, "^the study: law='chinchila': there is no such law"),
    ],
)
def test_a_mistake_in_a_dict_names_its_key(changes, what, tmp_path):
    for verb in (scaling.plan, scaling.study):
        with pytest.raises(ScalingError, match=what):
            verb({**SMALL, **changes}, runs=str(tmp_path))


def test_a_study_is_planned_from_a_dict_as_from_its_file(tmp_path):
    file, named, unnamed = (
        scaling.plan(source, "seed=5", runs=str(tmp_path))
        for source in (write(tmp_path), {"name": "asked", **SMALL}, SMALL)
    )
    assert named.to_json()["study"] == file.to_json()["study"] == "asked-seed-5"
    assert unnamed.to_json()["study"] == "study-seed-5"
    assert list(named.runs["run"]) == list(file.runs["run"]) == list(unnamed.runs["run"])


def test_what_is_right_is_taken(tmp_path):
    path = write(
        tmp_path,
        target={"N": "1B", "D": 2e10},
        suppose={"E": 1.8, "A": 400, "noise": 0.01},
        define={"noise": 0.002, "optimizer": "AdamW"},
        minutes=5,
        resources={"gpus": 2, "memory": 8},
        at={"small": AT, "paper": {"target": {"C": "1T"}}},
    )
    question = read(str(path))
    assert question.target == {"N": 1e9, "D": 2e10}
    assert question.define == {"noise": "0.002", "optimizer": "AdamW"}
    assert (question.minutes, question.resources) == (5, {"gpus": 2, "memory": 8})
    assert read(str(path), "paper").target == {"C": 1e12}
    assert read(str(path), "paper").laws == ["chinchilla"]


@pytest.mark.parametrize(("scales", "fix"), [({}, "there is none"), ({"at": {"small": AT}}, "choose from small")])
def test_a_scale_that_the_study_lacks(scales, fix, tmp_path):
    with pytest.raises(ScalingError, match=f"at='paper': the study has no such scale; {fix}"):
        read(str(write(tmp_path, **scales)), "paper")
