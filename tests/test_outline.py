"""The schema that is read from source is that of the classes: no name more, no name less."""

from __future__ import annotations

from typing import Any

import pytest

from scaling import build, outline
from scaling.config import load
from scaling.errors import ScalingError


@pytest.mark.parametrize("slot", build.SLOTS)
def test_kinds_and_keys_are_those_of_the_classes(slot):
    real, read = build.kinds(slot), outline.kinds(slot)
    assert list(read) == list(real)
    for name in real:
        keys, found = build.keys(real[name]), build.keys(read[name])
        assert list(found) == list(keys), name
        for key, parameter in keys.items():
            assert (found[key].default is parameter.empty) == (parameter.default is parameter.empty), f"{name}.{key}"
            assert found[key].annotation in (parameter.annotation, Any), f"{name}.{key}"
            assert build.is_recipe(found[key].annotation) == build.is_recipe(parameter.annotation), f"{name}.{key}"


WORDS = [
    "model.widht=1",
    "model.kind=Decodre",
    "model.block.channel.kind=Gate",
    "model.block.channel.hiden_times=2",
    "model.block.mixer.dropout=much",
    "optimizer.lrr=1",
    "schedule.kind=Cosin",
    "data.symbols=many",
    "size.heads=3",
    "size.widht=8",
    "objective.kind=null",
]


@pytest.mark.parametrize("word", WORDS)
def test_a_mistake_is_told_in_the_words_of_the_build(word):
    config = load("decoder", ["size=tiny", "data=synthetic", "size.vocabulary=16", word])
    with pytest.raises(ScalingError) as early:
        config.check()
    section = word.partition(".")[0].replace("size", "model")  # whose class makes the shape
    with pytest.raises(ScalingError) as late:
        config.build(section, *([config["size"]] if section == "model" else []))
    assert str(early.value) == str(late.value)
