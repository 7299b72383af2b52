"""The three families, and the decoder of two directions: assembly only."""

from scaling.model.families import BiLM, Decoder, Encoder, EncoderDecoder

__all__ = ["BiLM", "Decoder", "Encoder", "EncoderDecoder"]
