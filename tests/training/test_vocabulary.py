"""How many ids a model knows: what data and objective need, rounded up where that is asked, and never fewer."""

from __future__ import annotations

import json

import pytest

from scaling import cli
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


# A shipped size is a shape; its vocabulary is that of another corpus.


def test_a_shipped_size_takes_more_ids_where_the_data_have_more(tmp_path):
    many = {"data.symbols": 1000, "data.order": 1, "size.vocabulary": "absent"}
    told = words(tmp_path, **many)
    experiment = assemble(load(told))
    assert experiment.spec["size"]["vocabulary"] == 1001
    assert experiment.cost.parameters_by_slot["head"] == 1001 * experiment.config["size.width"]
    assert assemble(load([*told, "train.round_vocabulary=128"])).spec["size"]["vocabulary"] == 1024


def test_a_shipped_size_keeps_the_ids_that_it_has_more(tmp_path):
    """So that runs of before keep their ids."""
    experiment = assemble(load(words(tmp_path, **{"size.vocabulary": "absent"})))
    assert experiment.spec["size"]["vocabulary"] == 512


@pytest.mark.parametrize("where", ["command line", "file", "size's keys"])
def test_a_vocabulary_that_a_person_gives_stands(tmp_path, where):
    many = {"data.symbols": 1000, "data.order": 1, "size.vocabulary": "absent"}
    told = words(tmp_path, **many)
    if where == "command line":
        told.append("size.vocabulary=512")
    else:
        size = "{width: 8, layers: 1, heads: 1, length: 16, vocabulary: 512}"
        lines = [f"size: {size}"] if where == "size's keys" else ["size: tiny", "size.vocabulary: 512"]
        (tmp_path / "mine.yaml").write_text("\n".join(["base: decoder", *lines, ""]))
        told = [str(tmp_path / "mine.yaml"), *(word for word in told[1:] if not word.startswith("size"))]
    with pytest.raises(ScalingError, match=r"size\.vocabulary=512: the data and the objective use 1001 ids"):
        assemble(load(told))


def test_a_model_is_counted_with_the_ids_that_it_is_trained_with(tmp_path, capsys):
    for size in ("absent", "null"):
        told = words(tmp_path, **{"data.symbols": 1000, "data.order": 1, "size.vocabulary": size})
        trained = assemble(load(told)).cost.parameters
        assert cli.main(["inspect", *told, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["parameters"] == trained


def test_without_prepared_data_a_shipped_size_is_counted_as_it_is(tmp_path, capsys):
    told = ["inspect", "decoder", "size=ladder/10k", "data=python", f"runs={tmp_path}/runs", "--json"]
    assert cli.main(told) == 0
    found = json.loads(capsys.readouterr().out)
    assert cli.main([*told, "size.vocabulary=4096"]) == 0
    assert json.loads(capsys.readouterr().out) == found
    assert cli.main([*told, "size.vocabulary=null"]) == 2
    assert "data: the data have not been prepared in " in capsys.readouterr().err
