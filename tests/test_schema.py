"""A line is read by the signature of its kind, and a number has the range that is declared."""

from __future__ import annotations

import math
import typing

import pytest

from scaling import schema
from scaling.cli import main
from scaling.errors import ScalingError
from scaling.schema import Range

KINDS = {f"{slot}.{name}": (slot, kind) for slot in schema.SLOTS for name, kind in schema.kinds(slot).items()}


@pytest.mark.parametrize("kind", [{}, [1, 2], None, 3, True, {"kind": "AdamW"}, {"kind": None}, ""], ids=repr)
@pytest.mark.parametrize("slot", schema.SLOTS)
def test_a_kind_that_is_no_name_of_the_slot_is_one_line(slot, kind):
    with pytest.raises(ScalingError) as error:
        schema.recipe(slot, {"kind": kind})
    assert error.value.key == "kind"
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "word", ["optimizer={kind: {}}", "model.block.channel={kind: [1, 2]}", "objective={kind: null}"]
)
def test_a_kind_that_is_not_text_is_told_on_the_command_line(word, capsys):
    assert main(["inspect", "decoder", word]) == 2
    line = capsys.readouterr().err
    assert line.startswith(f"scaling: command line: {word.partition('=')[0]}.kind=")
    assert line.count("\n") == 1


MISSPELT = {
    "model.kind=Decodre": "did you mean 'Decoder'?",
    "model.widht=1": "Decoder has no such key",
    "model.block.channel.kind=Gate": "did you mean 'Gated'?",
    "model.block.channel.hiden_times=2": "Gated has no such key; did you mean 'hidden_times'?",
    "model.block.mixer.dropout=much": "expected a number from 0 and below 1",
    "optimizer.lrr=1": "AdamW has no such key; did you mean 'lr'?",
    "data={kind: Synthetic, symbols: many}": "expected a whole number from 2 and up to 8,192",
    "size.widht=8": "did you mean 'width'?",
}


@pytest.mark.parametrize("word", MISSPELT)
def test_a_mistake_in_a_line_names_its_key_and_the_fix(word, capsys):
    assert main(["inspect", "decoder", "size=tiny", word]) == 2
    line = capsys.readouterr().err
    assert line.startswith("scaling: command line: ")
    assert MISSPELT[word] in line
    assert line.count("\n") == 1


def test_a_mistake_in_a_file_names_its_line(tmp_path, capsys):
    file = tmp_path / "mine.yaml"
    file.write_text("base: decoder\nmodel.block.channel:\n  kind: Gated\n  activaton: GeLU\n")
    assert main(["inspect", str(file), "size=tiny"]) == 2
    place = f"scaling: {file}:4: model.block.channel.activaton='GeLU': Gated has no such key; "
    assert capsys.readouterr().err == f"{place}did you mean 'activation'?\n"


def numbers(annotation: typing.Any) -> list[type]:
    """The types of number that an annotation holds without a range."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return [] if any(isinstance(bounds, Range) for bounds in inner[1:]) else numbers(inner[0])
    return [annotation] if annotation in (int, float) else [one for part in inner for one in numbers(part)]


# The numbers that may be any finite one, by the kind that has them.
ANY = {("Swish", "beta"), ("ELU", "alpha")}


@pytest.mark.parametrize("name", KINDS)
def test_every_number_says_its_range(name):
    _, kind = KINDS[name]
    for key, parameter in schema.keys(kind).items():
        if not schema.is_recipe(parameter.annotation) and (kind.__name__, key) not in ANY:
            assert not numbers(parameter.annotation), f"{name}.{key}: annotate it with a type of scaling.schema"


OUTSIDE = (math.nan, math.inf, -math.inf, 10**400, 1e300, -1e300, -1, True)


@pytest.mark.parametrize("name", KINDS)
def test_a_number_outside_its_range_is_refused_with_the_range(name):
    _, kind = KINDS[name]
    for key, parameter in schema.keys(kind).items():
        if typing.get_origin(parameter.annotation) is not typing.Annotated:
            continue
        for value in OUTSIDE:
            bounds = typing.get_args(parameter.annotation)[1]
            if value is not True and abs(value) < math.inf and value in bounds and abs(value) <= 1e300:
                continue
            with pytest.raises(ScalingError) as error:
                schema.check(key, value, parameter.annotation)
            assert key in str(error.value)
            assert "expected a" in str(error.value)
            assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        (Range(above=0), "a number above 0"),
        (Range(least=0, below=1), "a number from 0 and below 1"),
        (Range(least=0, most=1), "a number from 0 and up to 1"),
        (Range(least=2, most=8192), "a number from 2 and up to 8,192"),
        (Range(most=10**18), "a number up to 1e18"),
    ],
)
def test_a_range_in_words(bounds, words):
    assert bounds.of("a number") == words


def test_an_extension_that_joins_nothing_is_refused(tmp_path):
    (tmp_path / "mine.py").write_text('class Twice:\n    slot = "schedule_that_is_not"\n')
    for name, what in (("mine.py", "there is no such slot"), ("gone.py", "there is no such Python file")):
        with pytest.raises(ScalingError, match=what) as caught:
            schema.extend(tmp_path / name)
        assert caught.value.file == tmp_path / name
