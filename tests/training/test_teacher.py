"""What training minimises beside the plain loss: a teacher's predictions, and smoothed labels."""

from __future__ import annotations

import pytest

from scaling.errors import ScalingError
from scaling.ledger import Ledger

STILL = {"model.block.mixer.dropout": 0, "parametrization": "{kind: Standard, head: normal}"}


def losses(runs, run: str) -> list[float]:
    return [entry["loss"] for entry in Ledger.open(runs).history(run) if entry.get("kind") == "train"]


@pytest.fixture
def taught(tmp_path, run):
    """A teacher in the ledger, and a function that trains a pupil of another seed on it."""
    teacher = run(trainer__max_steps=20, **STILL)["run"]

    def pupil(weight: float, name: str = teacher) -> list[float]:
        line = f"{{kind: Distil, objective: Causal, teacher: '{name}', weight: {weight}}}"
        return losses(tmp_path / "runs", run(objective=line, seed=1, **STILL)["run"])

    return pupil


def test_without_weight_a_teacher_changes_nothing(tmp_path, run, taught):
    plain = losses(tmp_path / "runs", run(seed=1, **STILL)["run"])
    assert taught(0.0) == pytest.approx(plain, rel=1e-5)


def test_a_pupil_comes_nearer_to_its_teacher(taught):
    distances = taught(1.0)  # nothing but KL(teacher ‖ pupil)
    assert all(distance > 0 for distance in distances)
    assert distances[-1] < distances[0]


def test_a_teacher_that_is_not_there_is_refused(taught):
    with pytest.raises(ScalingError, match=r"objective\.teacher.*there is no such run"):
        taught(0.5, "feed")


def test_smoothing_changes_training_and_not_how_it_is_judged(tmp_path, run):
    plain, smooth = run(**STILL), run(train__smoothing=0.1, **STILL)
    assert smooth["run"] != plain["run"]
    runs = tmp_path / "runs"
    assert losses(runs, smooth["run"])[0] != losses(runs, plain["run"])[0]
    assert abs(smooth["loss"] - plain["loss"]) < 0.1


def test_smoothing_is_a_share(run):
    with pytest.raises(ScalingError, match=r"train\.smoothing=1\.5.*below 1"):
        run(train__smoothing=1.5)
