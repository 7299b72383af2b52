"""Token mixers: how positions learn of one another."""

from scaling.nn.mixer.attention import Attention, CrossAttention, Weighted
from scaling.nn.mixer.compressed import Linformer, MemoryCompressed
from scaling.nn.mixer.convolution import (
    Convolution,
    DilatedConvolution,
    DynamicConvolution,
    GatedConvolution,
    LightweightConvolution,
)
from scaling.nn.mixer.cross import AdditiveAttention, Aligned, MultiplicativeAttention
from scaling.nn.mixer.linear_attention import LinearAttention, Performer
from scaling.nn.mixer.recurrent import GRU, LSTM, BidirectionalGRU, BidirectionalLSTM
from scaling.nn.mixer.sparse import BigBird, BlockLocal, Longformer
from scaling.nn.mixer.synthesizer import DenseSynthesizer, FactorizedSynthesizer, RandomSynthesizer

__all__ = [
    "GRU",
    "LSTM",
    "AdditiveAttention",
    "Aligned",
    "Attention",
    "BidirectionalGRU",
    "BidirectionalLSTM",
    "BigBird",
    "BlockLocal",
    "Convolution",
    "CrossAttention",
    "DenseSynthesizer",
    "DilatedConvolution",
    "DynamicConvolution",
    "FactorizedSynthesizer",
    "GatedConvolution",
    "LightweightConvolution",
    "LinearAttention",
    "Linformer",
    "Longformer",
    "MemoryCompressed",
    "MultiplicativeAttention",
    "Performer",
    "RandomSynthesizer",
    "Weighted",
]
