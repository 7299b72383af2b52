"""Writing: a model's own continuation of a prompt, token by token from its key-value cache."""

from scaling.decode.generate import generate
from scaling.decode.reader import Reader, aligned, prompt, prompts
from scaling.decode.strategy import Beam, Greedy, Sample
from scaling.decode.until import Until
from scaling.decode.written import Written

__all__ = ["Beam", "Greedy", "Reader", "Sample", "Until", "Written", "aligned", "generate", "prompt", "prompts"]
