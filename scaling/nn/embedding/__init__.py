"""Embeddings: token ids -> the stream."""

from scaling.nn.embedding.adaptive import Adaptive
from scaling.nn.embedding.embedding import Token
from scaling.nn.embedding.factorized import Factorized
from scaling.nn.embedding.projected import Projected

__all__ = ["Adaptive", "Factorized", "Projected", "Token"]
