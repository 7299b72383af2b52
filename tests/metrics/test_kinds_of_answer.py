"""A task takes the metrics that score its kind of answer, and refuses the others before anything is trained."""

from __future__ import annotations

import pytest

from scaling.base.errors import ScalingError
from scaling.config.schema import build, kinds

# Predictions and references of each kind; None is an output that is no answer.
ANSWERS = {
    "class": ([0, 1, None], [0, 1, 1]),
    "classes": ([(0, 1), (), None], [(0,), (1, 2), (2,)]),
    "number": ([0.5, 1.0, None], [1.0, 2.0, 3.0]),
    "tags": ([["O", "B-x"], ["O"], None], [["O", "B-x"], ["O", "O"], ["B-x"]]),
    "span": (["a b", "", None], [["a b"], ["b", "c"], ["x"]]),
    "text": (["(S (X a))", "", None], ["(S (X a))", ["(S (Y b))"], "(S (X c))"]),
}
KEYS = {"class": {"labels": ["no", "yes"]}, "classes": {"labels": ["a", "b", "c"]}, "tags": {"labels": ["O", "B-x"]}}


@pytest.mark.parametrize("metric", sorted(kinds("metric")))
@pytest.mark.parametrize("answer", ANSWERS)
def test_a_task_takes_a_metric_that_scores_its_answers(answer, metric):
    line = {"kind": "Task", "answer": answer, "text": "{text}", "metric": metric, "tokenizer": "Byte"}
    line |= {"files": {"train": "train.jsonl"}, **KEYS.get(answer, {})}
    if answer == "span":
        line["second"] = "{context}"
    scored = kinds("metric")[metric].answers
    if not scored or answer in scored:
        values = build("data", line).goal.metric.score(*ANSWERS[answer])
        assert all(isinstance(value, float) for value in values.values())
    else:
        with pytest.raises(ScalingError, match=f"it does not score answers of the kind {answer}; choose from Accuracy"):
            build("data", line)
