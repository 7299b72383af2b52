"""Embeddings: token ids -> the stream."""

from scaling.nn.embedding.token import Token

__all__ = ["Token"]
