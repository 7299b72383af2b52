"""Token mixers: how positions learn of one another."""

from scaling.nn.mixer.attention import Attention, CrossAttention

__all__ = ["Attention", "CrossAttention"]
