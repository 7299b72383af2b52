"""The three families: assembly only."""

from scaling.model.decoder import Decoder
from scaling.model.encoder import Encoder
from scaling.model.encoder_decoder import EncoderDecoder

__all__ = ["Decoder", "Encoder", "EncoderDecoder"]
