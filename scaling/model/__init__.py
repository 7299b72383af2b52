"""The three families, and the decoder of two directions: assembly only."""

from scaling.model.decoder import BiLM, Decoder
from scaling.model.encoder import Encoder
from scaling.model.encoder_decoder import EncoderDecoder

__all__ = ["BiLM", "Decoder", "Encoder", "EncoderDecoder"]
