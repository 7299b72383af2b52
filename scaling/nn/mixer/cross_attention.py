from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from scaling.nn.context import Context
from scaling.nn.contract import Mixer
from scaling.nn.mixer.attention import Scale, scale_of
from scaling.nn.mixer.softmax import attend
from scaling.nn.role import declare
from scaling.schema import BelowOne, Factor
from scaling.shape import Shape


class CrossAttention(nn.Module, Mixer):
    """Attention whose keys and values come from the encoder's output. (Vaswani et al. 2017, section 3.2.3)

    It knows no positions but those that the encoder wrote into its output. `heads_times` and `head_width_times`
    multiply the shape's heads and their width, where those of self-attention are not this one's.
    """

    slot, reads_memory = "cross", True
    heads: int

    def __init__(
        self,
        shape: Shape,
        *,
        heads_times: Factor = 1.0,
        head_width_times: Factor = 1.0,
        bias: bool = False,
        scale: Scale = "sqrt",
        dropout: BelowOne = 0.0,
    ):
        super().__init__()
        self.heads, self.key_heads = _times(shape.heads, heads_times), _times(shape.key_heads, heads_times)
        width, value_width = (_times(size, head_width_times) for size in (shape.head_width, shape.value_width))
        self.scale, self.dropout = scale_of(scale, width), dropout
        self.query = declare(nn.Linear(shape.width, self.heads * width, bias), weight="query")
        self.key = nn.Linear(shape.width, self.key_heads * width, bias)
        self.value = nn.Linear(shape.width, self.key_heads * value_width, bias)
        self.out = declare(nn.Linear(self.heads * value_width, shape.width, bias), weight="output")
        self.prefix: nn.Module | None = None

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        q = self.query(x).unflatten(-1, (self.heads, -1))
        k, v = self._memory(context)
        context = context.at_memory()
        if self.prefix is not None:
            k, v, context = self.prefix(k, v, context)
        mixed = attend(q, k, v, context, scale=self.scale, dropout=self.dropout if self.training else 0.0)
        return self.out(mixed.flatten(2))

    def _memory(self, context: Context) -> tuple[Tensor, Tensor]:
        """Keys and values of the memory; while decoding they are made once."""
        state, memory = context.memory_state(self), context.memory
        if state:
            return state["key"], state["value"]
        k = self.key(memory).unflatten(-1, (self.key_heads, -1))
        v = self.value(memory).unflatten(-1, (self.key_heads, -1))
        if state is not None:
            state["key"], state["value"] = k, v
        return k, v


def _times(size: int, factor: float) -> int:
    return max(1, round(size * factor))
