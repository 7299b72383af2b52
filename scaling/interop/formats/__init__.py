"""The architectures of transformers that are read and written."""

from scaling.interop.formats.bart import BART, MARIAN
from scaling.interop.formats.bert import BERT, MASKED_BERT, ROBERTA
from scaling.interop.formats.gpt2 import GPT1, GPT2
from scaling.interop.formats.llama import GPT_NEOX, LLAMA
from scaling.interop.formats.t5 import T5, T5_V1_1

FORMATS = (GPT1, GPT2, BERT, MASKED_BERT, ROBERTA, T5, T5_V1_1, BART, MARIAN, LLAMA, GPT_NEOX)
