"""Templates: fields in their places, and nothing but fields."""

from __future__ import annotations

import pytest

from scaling.base.errors import ScalingError
from scaling.data.documents import fill

ROW = {
    "text": "a {b}",
    "pair": {"de": "eins", "en": "one"},
    "answers": ["x", "y"],
    "none": [],
    "score": 3.75,
    "no": None,
    "large": 10**400,
}


@pytest.mark.parametrize(
    ("template", "filled"),
    [
        ("{text}", "a {b}"),
        ("plain", "plain"),
        ("{pair.de} is {pair.en}", "eins is one"),
        ("{answers.1}", "y"),
        ("{answers}", "x, y"),
        ("{score:.1f}", "3.8"),
        ("say {none.0}", None),
        ("say {no}", None),
        ("{no.deeper}", None),
        ('{"text": {score}}', '{"text": 3.75}'),
        ("{large:,}", f"{10**400:,}"),
    ],
)
def test_fields_come_in_their_places(template: str, filled: str | None) -> None:
    assert fill(template, ROW, "text") == filled


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("{txt}", "text: the data have no field 'txt'; did you mean 'text'?"),
        ("{pair.fr}", "text: the data have no field 'pair.fr'"),
        ("{text.upper}", "text: 'text.upper' leads into str, which has no parts"),
        ("{text:.1f}", "cannot be written as '.1f'"),
        ("{large:.1f}", "cannot be written as '.1f'"),
        (
            "{text:>2000000000}",
            "text='{text:>2000000000}': {text:>2000000000} has a form that is none of a number; write",
        ),
        ("{score:2000000000.1f}", "has a form that is none of a number"),
        ("{score:.2000000000f}", "has a form that is none of a number"),
        ("{text!r}", "text='{text!r}': {text!r} has a conversion"),
        ("{text!s:>5}", "has a conversion"),
        ("{text:{score}}", "text='{text:{score}}': a field is within the form of another: {text:{; write"),
        ("{text:>{score}}", "a field is within the form of another"),
    ],
)
def test_what_is_no_field_is_refused(template: str, told: str) -> None:
    with pytest.raises(ScalingError) as caught:
        fill(template, ROW, "text")
    assert told in str(caught.value)
