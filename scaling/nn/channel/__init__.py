"""Channel mixers: what each position does by itself."""

from scaling.nn.channel.dense import Dense
from scaling.nn.channel.experts import MixtureOfExperts
from scaling.nn.channel.gated import Gated
from scaling.nn.channel.product_keys import ProductKeys
from scaling.nn.channel.switch import Switch

__all__ = ["Dense", "Gated", "MixtureOfExperts", "ProductKeys", "Switch"]
