"""The setup is stated by the specs of the runs: one value where they agree, each where they differ."""

import pytest

from scaling.config import load
from scaling.laws.points import SETUP
from scaling.reports.setup import setup
from scaling.training.experiment import assemble


def specs(*words: list[str]) -> list[dict]:
    return [assemble(load("decoder", ["train.tokens=200k", "schedule.warmup=4", *more])).spec for more in words]


def test_every_part_has_a_name_that_a_study_may_define():
    answers = setup(specs([]), [{"passes": 0.0}])
    assert set(answers) == set(SETUP) - {"hypothesis", "noise"}


def test_runs_that_agree_are_one_answer():
    answers = setup(specs(["seed=0"], ["seed=1"]))
    assert answers["optimizer"].startswith("AdamW;")
    assert "gradient norm up to 1.0" in answers["optimizer"]
    assert answers["lr"].startswith("0.003; parametrization")
    assert answers["batch"].startswith("rows 64; length ")
    assert answers["tokenizer"].startswith("none: the data are symbols; vocabulary ")
    assert "mixer Attention" in answers["architecture"]
    assert "; width " in answers["architecture"]


DIFFER = {
    "numbers as a range": (["optimizer.lr=0.001"], ["optimizer.lr=0.004"], "lr", "0.001 to 0.004, 2 values"),
    "kinds by name": (["optimizer=AdamW"], ["optimizer=Adafactor"], "optimizer", "AdamW or Adafactor"),
    "a key of one kind": (
        ["optimizer.weight_decay=0.0"],
        ["optimizer.weight_decay=0.2"],
        "optimizer",
        "weight_decay 0.0 to 0.2, 2 values",
    ),
    "a piece within the model": (
        ["model.block.norm=RMSNorm"],
        ["model.block.norm=LayerNorm"],
        "architecture",
        "RMSNorm or ",
    ),
    "widths": (["size.width=32"], ["size.width=64"], "architecture", "width 32 to 64, 2 values"),
    "budgets": (["train.tokens=200k"], ["train.tokens=400k"], "schedule", "last step: "),
}


@pytest.mark.parametrize("name", DIFFER)
def test_what_differs_is_stated(name):
    one, other, key, said = DIFFER[name]
    answer = setup(specs(one, other))[key]
    assert said in answer
    if name != "budgets":
        assert setup(specs(one))[key] != answer


@pytest.mark.parametrize(
    ("passes", "said"), [((0.0, 1.0), "nothing is repeated"), ((0.5, 3.25), "repeated up to 3.25 times")]
)
def test_repeated_data_are_stated_where_the_results_state_it(passes, said):
    both = specs(["seed=0"], ["seed=1"])
    assert setup(both, [{"passes": one} for one in passes])["data"].endswith(said)
    assert "repeated" not in setup(both, [{"passes": 1.0}, None])["data"]
