"""The three families, and the decoder of two directions: assembly only."""

KINDS = {"family": ("Decoder", "Encoder"), "two_towers": ("BiLM", "EncoderDecoder")}
