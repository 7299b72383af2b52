"""Shape: the sizes that a whole stack shares, checked once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any

from scaling.build import check
from scaling.errors import ScalingError, nearest
from scaling.number import PositiveFloat, Range, SmallInt

Width = Annotated[int, Range(least=1, most=1 << 20)]
# Products of three of these, in bytes, stay below 2⁶³, above which no tensor has a size.
SIZES = {
    "width": Width,
    "layers": Annotated[int, Range(least=1, most=4096)],
    "heads": SmallInt,
    "vocabulary": Annotated[int, Range(least=1, most=1 << 30)],
    "length": Annotated[int, Range(least=1, most=1 << 24)],
    "head_width": Width,
    "value_width": Width,
    "key_heads": SmallInt,
    "hidden": Annotated[int, Range(least=1, most=1 << 24)],
}


@dataclass(frozen=True)
class Shape:
    """d_model, N, h, d_k, d_v, d_ff, V and n of "Attention Is All You Need" (Vaswani et al. 2017), under their full
    names.
    """

    width: int
    layers: int
    heads: int
    vocabulary: int
    length: int
    head_width: int
    value_width: int
    key_heads: int
    hidden: int

    def hidden_times(self, times: float) -> int:
        """The hidden width of a layer narrower or wider than the shape's, a multiple of 8 for the kernels' sake."""
        return self.hidden if times == 1 else max(8, 8 * round(self.hidden * times / 8))

    @staticmethod
    def of(size: Mapping[str, Any]) -> Shape:
        """A shape from the `size` section: what is left out follows from the width.

        head_width = width / heads, value_width = head_width, key_heads = heads, hidden = 4 width. `times` multiplies,
        before heads say key_heads and head_width value_width, so that {layers: 2} is a difference from any size.
        """
        known = {field.name for field in fields(Shape)}
        for key in size:
            if key not in (*known, "times"):
                raise ScalingError("no such key in a size", key=f"size.{key}", mend=nearest(str(key), known))
        times = _factors(size.get("times"), known)
        given = {
            key: check(f"size.{key}", value, SIZES[key])
            for key, value in size.items()
            if key != "times" and value is not None
        }
        for key in ("width", "layers", "heads", "vocabulary", "length"):
            if key not in given:
                raise ScalingError("a size needs it", key=f"size.{key}", mend=f"say size.{key}=… or name a whole size")
        width, heads = given["width"], given["heads"]
        if "head_width" not in given and width % heads:
            raise ScalingError(
                f"width {width} is not divisible by {heads} heads",
                key="size.heads",
                value=heads,
                mend=f"take {_divisor(width, heads)} heads, or say size.head_width=…",
            )
        before = {"head_width": width // heads, "hidden": 4 * width, **given}
        sized = {
            key: check(f"size.{key}", max(1, round(value * times.get(key, 1))), SIZES[key])
            for key, value in before.items()
        }
        heads = sized["heads"]
        key_heads = sized.setdefault("key_heads", heads)
        if heads % key_heads:
            raise ScalingError(
                f"{heads} heads cannot share {key_heads} key heads evenly",
                key="size.key_heads",
                value=key_heads,
                mend=f"take a divisor of {heads}",
            )
        sized.setdefault("value_width", max(1, round(sized["head_width"] * times.get("value_width", 1))))
        return Shape(**sized)


def _factors(times: Any, known: Collection[str]) -> dict[str, float]:
    """`size.times`: factors on sizes, each the size's nearest whole number."""
    if times is None:
        return {}
    if not isinstance(times, Mapping):
        raise ScalingError("expected factors", key="size.times", value=times, mend="write {layers: 2, hidden: 0.5}")
    for key, factor in times.items():
        if key not in known:
            raise ScalingError("no such key in a size", key=f"size.times.{key}", mend=nearest(str(key), known))
        check(f"size.times.{key}", factor, PositiveFloat)
    return dict(times)


def _divisor(width: int, near: int) -> int:
    """The divisor of `width` nearest to the number asked for."""
    return min((n for n in range(1, width + 1) if width % n == 0), key=lambda n: (abs(n - near), n))
