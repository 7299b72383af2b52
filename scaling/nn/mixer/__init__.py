"""Token mixers: how positions learn of one another."""

from scaling.nn.mixer.aligned import Aligned
from scaling.nn.mixer.attention import Attention
from scaling.nn.mixer.compressed import MemoryCompressed
from scaling.nn.mixer.convolution import Convolution, DynamicConvolution, LightweightConvolution
from scaling.nn.mixer.cross_attention import CrossAttention
from scaling.nn.mixer.dilated import DilatedConvolution
from scaling.nn.mixer.gated_convolution import GatedConvolution
from scaling.nn.mixer.gru import GRU, BidirectionalGRU
from scaling.nn.mixer.kernel import LinearAttention, Performer
from scaling.nn.mixer.linformer import Linformer
from scaling.nn.mixer.lstm import LSTM, BidirectionalLSTM
from scaling.nn.mixer.single_head import AdditiveAttention, MultiplicativeAttention
from scaling.nn.mixer.sparse import BigBird, BlockLocal, Longformer
from scaling.nn.mixer.synthesizer import DenseSynthesizer, FactorizedSynthesizer, RandomSynthesizer
from scaling.nn.mixer.weighted import Weighted

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
