"""The architectures of transformers that are read and written; where several fit a model, the first of `FORMATS`."""

from scaling.interop.format import Format
from scaling.interop.formats.bart import BART, Marian
from scaling.interop.formats.bert import BERT, MaskedBERT, RoBERTa
from scaling.interop.formats.gpt2 import GPT1, GPT2
from scaling.interop.formats.llama import GPTNeoX, Llama
from scaling.interop.formats.t5 import T5, T5v1_1

FORMATS: tuple[type[Format], ...] = (
    GPT1,
    GPT2,
    BERT,
    MaskedBERT,
    RoBERTa,
    T5,
    T5v1_1,
    BART,
    Marian,
    Llama,
    GPTNeoX,
)
