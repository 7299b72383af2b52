"""What a law of whole curves reads of a study's logs."""

from __future__ import annotations

from scaling.verbs.fit import read_curves


def test_evaluations_of_another_sample_are_left_out(tmp_path, made_study):
    """Under `whole_at_end` the last evaluation is of more windows, and its loss is off the others' by a constant."""
    ledger, plan = made_study(tmp_path, outcome=lambda _: None)
    for one in plan.runs:
        with ledger.claim(one.run) as attempt:
            attempt.log.write({"kind": "train", "step": 1, "loss": 4.0})
            for step, loss, targets in ((1, 3.9, 100), (2, 3.5, 100), (3, 3.2, 900)):
                attempt.log.write({"kind": "evaluate", "step": step, "loss": loss, "targets": targets})
    curves = read_curves(ledger.root / "studies" / "small")
    assert len(curves) == len(plan.runs)
    for curve in curves:
        assert curve.steps[curve.kinds == 1].tolist() == [1, 2]
        assert curve.steps[curve.kinds == 0].tolist() == [1]


def test_one_evaluation_at_the_end_is_read(tmp_path, made_study):
    ledger, plan = made_study(tmp_path, outcome=lambda _: None)
    for one in plan.runs:
        with ledger.claim(one.run) as attempt:
            attempt.log.write({"kind": "evaluate", "step": 3, "loss": 3.2, "targets": 900})
    assert all(curve.steps.tolist() == [3] for curve in read_curves(ledger.root / "studies" / "small"))
