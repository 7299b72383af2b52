"""How many ids a model knows: what data and objective need, rounded up where that is asked, and never fewer."""

from __future__ import annotations

import pytest

from scaling.errors import ScalingError
from scaling.training.experiment import assemble
from tests.training.conftest import load, words


@pytest.mark.parametrize(("multiple", "size"), [(1, 17), (8, 24), (128, 128)])
def test_left_to_the_data_it_is_what_is_needed(tmp_path, multiple, size):
    told = {"data.symbols": 16, "size.vocabulary": "null"}
    experiment = assemble(load(words(tmp_path, **told, train__round_vocabulary=multiple)))
    assert experiment.config["size.vocabulary"] == size
    assert experiment.spec["size"]["vocabulary"] == size
    assert experiment.cost.parameters_by_slot["head"] == size * experiment.config["size.width"]


def test_too_few_are_refused(tmp_path):
    told = {"data.symbols": 16, "size.vocabulary": 16}
    with pytest.raises(ScalingError, match=r"use 17 ids; set size\.vocabulary to 17"):
        assemble(load(words(tmp_path, **told)))
