"""Token mixers: how positions learn of one another."""
# ruff: noqa: F401

from scaling.model.mixer.attention import Attention, Weighted
from scaling.model.mixer.compressed import Linformer, MemoryCompressed
from scaling.model.mixer.convolution import (
    Convolution,
    DilatedConvolution,
    DynamicConvolution,
    GatedConvolution,
    LightweightConvolution,
)
from scaling.model.mixer.cross import AdditiveAttention, Aligned, CrossAttention, MultiplicativeAttention
from scaling.model.mixer.linear_attention import LinearAttention, Performer
from scaling.model.mixer.recurrent import GRU, LSTM, BidirectionalGRU, BidirectionalLSTM
from scaling.model.mixer.sparse import BigBird, BlockLocal, Longformer
from scaling.model.mixer.synthesizer import DenseSynthesizer, FactorizedSynthesizer, RandomSynthesizer
