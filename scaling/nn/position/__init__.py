"""Positions: how a stack knows where its tokens are. Four hooks, each an identity by default (see `hooks`)."""

from scaling.nn.position.alibi import ALiBi
from scaling.nn.position.learned import Learned
from scaling.nn.position.none import NoPosition
from scaling.nn.position.relative_bias import RelativeBias
from scaling.nn.position.rotary import Rotary
from scaling.nn.position.shaw import Shaw
from scaling.nn.position.sinusoidal import Sinusoidal
from scaling.nn.position.syntax import Syntax
from scaling.nn.position.transformer_xl import TransformerXL

__all__ = ["ALiBi", "Learned", "NoPosition", "RelativeBias", "Rotary", "Shaw", "Sinusoidal", "Syntax", "TransformerXL"]
