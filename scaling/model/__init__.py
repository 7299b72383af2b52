"""The three families, and the decoder of two directions: assembly only."""

from scaling.model.family import Decoder, Encoder
from scaling.model.two_towers import BiLM, EncoderDecoder

__all__ = ["BiLM", "Decoder", "Encoder", "EncoderDecoder"]
