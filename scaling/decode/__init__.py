"""Writing: a model's own continuation of a prompt, token by token from its key-value cache."""

from scaling.decode.generate import Reader, Until, Written, aligned, generate, prompt, prompts
from scaling.decode.strategy import Beam, Greedy, Sample

__all__ = ["Beam", "Greedy", "Reader", "Sample", "Until", "Written", "aligned", "generate", "prompt", "prompts"]
