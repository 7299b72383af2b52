"""Shape: the sizes that a whole stack shares, checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

from scaling.base.errors import ScalingError, under
from scaling.base.numbers import Range, SmallInt
from scaling.config.schema import check, check_keys

WIDEST = 1 << 20
Width = Annotated[int, Range(least=1, most=WIDEST)]
Times = Annotated[float, Range(above=0, most=1e9)]


@dataclass(frozen=True)
class Shape:
    """d_model, N, h, d_k, d_v, d_ff, V and n of "Attention Is All You Need" (Vaswani et al. 2017) by their full names.
    Products of three of these, in bytes, stay below 2⁶³, above which no tensor has a size.
    """

    width: Annotated[Width, "width of the residual stream"]
    layers: Annotated[int, Range(least=1, most=4096), "number of blocks of a stack"]
    heads: Annotated[SmallInt, "attention heads of each layer"]
    vocabulary: Annotated[int, Range(least=1, most=1 << 30), "number of token ids; null: as the data need"]
    length: Annotated[int, Range(least=1, most=1 << 24), "tokens of a window"]
    head_width: Annotated[Width, "width of a query and a key (default: width / heads)"]
    value_width: Annotated[Width, "width of a value (default: head_width)"]
    key_heads: Annotated[SmallInt, "number of key and value heads, which the heads share (default: heads)"]
    hidden: Annotated[int, Range(least=1, most=1 << 24), "width of the feed-forward layer (default: 4 width)"]

    def hidden_times(self, times: float) -> int:
        """The hidden width of a layer narrower or wider than the shape's, a multiple of 8 for the kernels' sake."""
        return self.hidden if times == 1 else max(8, 8 * round(self.hidden * times / 8))

    def fraction(self, key: str, value: float) -> int:
        """A width of its own, or a fraction of the stream's."""
        return counted(key, value, self.width, WIDEST)

    def places(self, length: int | None, slot: str, what: str) -> int:
        """The number of positions that a piece has tables for: the window's length, unless a longer one is named."""
        if length is not None and length < self.length:
            fix = f"set {slot}.length to {self.length} or size.length to {length}"
            what = f"windows of {self.length} tokens are longer than the {length} {what}"
            raise ScalingError(what, key="length", value=length, fix=fix)
        return length or self.length

    def check_use(self, *, heads: bool, hidden: bool) -> None:
        """Refuse a size that was set and that no piece has: without it the model would be the same."""
        for key, usual in _usual(self.width, self.heads, self.head_width).items():
            value = getattr(self, key)
            if value != usual and not (hidden if key == "hidden" else heads):
                fix = f"leave it out, or take pieces that have {'a hidden layer' if key == 'hidden' else 'heads'}"
                raise ScalingError("no piece of the model reads it", key=f"size.{key}", value=value, fix=fix)

    @staticmethod
    def of(size: Mapping[str, Any]) -> Shape:
        """A shape from the `size` section: what is left out follows from the width.

        head_width = width / heads, value_width = head_width, key_heads = heads, hidden = 4 width. `times` multiplies,
        before heads set key_heads and head_width sets value_width, so that {layers: 2} is a difference from any size.
        """
        lines = {key: value for key, value in size.items() if value is not None or key not in (*SIZES, "times")}
        factors = lines.pop("times", {})
        with under("size"):
            if not isinstance(factors, Mapping):
                raise ScalingError("expected factors", key="times", value=factors, fix="write {layers: 2, hidden: 0.5}")
            with under("times"):
                times = check_keys(factors, dict.fromkeys(SIZES, Times), "a size")
            needed = ("width", "layers", "heads", "vocabulary", "length")
            fixes = {key: f"set size.{key}=… or name a whole size" for key in needed}
            sizes = check_keys(lines, SIZES, "a size", needed=fixes)
            width, heads = sizes["width"], sizes["heads"]
            if "head_width" not in sizes and width % heads:
                divisors = (number for number in range(1, width + 1) if width % number == 0)
                divisor = min(divisors, key=lambda number: (abs(number - heads), number))
                fix = f"take {divisor} heads, or set size.head_width=…"
                raise ScalingError(
                    f"width {width} is not divisible by {heads} heads", key="heads", value=heads, fix=fix
                )

            def scaled(key: str, value: int) -> int:
                return check(key, max(1, round(value * times.get(key, 1))), SIZES[key])

            usual = _usual(width, heads, width // heads)
            before = {"head_width": usual["head_width"], "hidden": usual["hidden"], **sizes}
            sized = {key: scaled(key, value) for key, value in before.items()}
            for key, like in (("key_heads", "heads"), ("value_width", "head_width")):
                if key not in sized:
                    sized[key] = scaled(key, sized[like])
            heads, key_heads = sized["heads"], sized["key_heads"]
            if heads % key_heads:
                what = f"{heads} heads cannot share {key_heads} key heads evenly"
                raise ScalingError(what, key="key_heads", value=key_heads, fix=f"take a divisor of {heads}")
        return Shape(**sized)


def counted(key: str, value: float, total: int, largest: int) -> int:
    """A number of tokens or of a vector's entries: below 1 it is a fraction, so that a line fits every size."""
    count = round(value * total) if 0 < value < 1 else round(value)
    if not 1 <= count <= largest or (value > 1 and count != value):
        raise ScalingError(f"expected a whole number up to {largest:,}, or a fraction below 1", key=key, value=value)
    return count


SIZES: Mapping[str, Any] = get_type_hints(Shape, include_extras=True)
"""The type and the meaning of each key of a size."""


def _usual(width: int, heads: int, head_width: int) -> dict[str, int]:
    """The default of each size that follows from others."""
    return {"head_width": width // heads, "value_width": head_width, "key_heads": heads, "hidden": 4 * width}
