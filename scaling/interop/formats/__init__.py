"""The architectures of transformers that are read and written; where several fit a model, the first of `FORMATS`."""

from scaling.interop.formats.albert import ALBERT, MaskedALBERT
from scaling.interop.formats.bart import BART, Marian
from scaling.interop.formats.bert import (
    BERT,
    XLMR,
    AnsweringBERT,
    AnsweringRoBERTa,
    AnsweringXLMR,
    ClassifyingBERT,
    ClassifyingRoBERTa,
    ClassifyingXLMR,
    MaskedBERT,
    RoBERTa,
    TaggingBERT,
    TaggingRoBERTa,
    TaggingXLMR,
)
from scaling.interop.formats.bloom import BLOOM
from scaling.interop.formats.distilbert import AnsweringDistilBERT, ClassifyingDistilBERT, DistilBERT, TaggingDistilBERT
from scaling.interop.formats.electra import ELECTRA, PlainELECTRA
from scaling.interop.formats.gpt2 import GPT1, GPT2
from scaling.interop.formats.llama import Gemma, GPTNeoX, Llama, Mistral, Qwen2, WindowlessMistral
from scaling.interop.formats.opt import OPT
from scaling.interop.formats.t5 import T5, T5v1_1
from scaling.interop.template import Format

FORMATS: tuple[type[Format], ...] = (
    GPT1,
    GPT2,
    OPT,
    BLOOM,
    BERT,
    MaskedBERT,
    ClassifyingBERT,
    TaggingBERT,
    AnsweringBERT,
    RoBERTa,
    ClassifyingRoBERTa,
    TaggingRoBERTa,
    AnsweringRoBERTa,
    XLMR,
    ClassifyingXLMR,
    TaggingXLMR,
    AnsweringXLMR,
    DistilBERT,
    ClassifyingDistilBERT,
    TaggingDistilBERT,
    AnsweringDistilBERT,
    ELECTRA,
    PlainELECTRA,
    ALBERT,
    MaskedALBERT,
    T5,
    T5v1_1,
    BART,
    Marian,
    Llama,
    Mistral,
    WindowlessMistral,
    Qwen2,
    Gemma,
    GPTNeoX,
)
