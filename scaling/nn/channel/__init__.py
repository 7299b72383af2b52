"""Channel mixers: what each position does by itself."""

from scaling.nn.channel.dense import Dense
from scaling.nn.channel.gated import Gated

__all__ = ["Dense", "Gated"]
