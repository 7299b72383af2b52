"""Parameter-efficient tunings: what is put into a built model, and which of its parameters are then trained."""

from scaling.nn.tuning.adapters import Adapters
from scaling.nn.tuning.bitfit import BitFit
from scaling.nn.tuning.ia3 import IA3
from scaling.nn.tuning.lora import LoRA
from scaling.nn.tuning.prefix import Prefix
from scaling.nn.tuning.prompt import Prompt
from scaling.nn.tuning.together import together

__all__ = ["IA3", "Adapters", "BitFit", "LoRA", "Prefix", "Prompt", "together"]
