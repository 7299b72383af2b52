"""Token mixers: how positions learn of one another."""

KINDS = {
    "attention": ("Attention", "Weighted"),
    "compressed": ("Linformer", "MemoryCompressed"),
    "convolution": (
        "Convolution",
        "DilatedConvolution",
        "DynamicConvolution",
        "GatedConvolution",
        "LightweightConvolution",
    ),
    "cross": ("AdditiveAttention", "Aligned", "CrossAttention", "MultiplicativeAttention"),
    "linear_attention": ("LinearAttention", "Performer"),
    "recurrent": ("GRU", "LSTM", "BidirectionalGRU", "BidirectionalLSTM"),
    "sparse": ("BigBird", "BlockLocal", "Longformer"),
    "synthesizer": ("DenseSynthesizer", "FactorizedSynthesizer", "RandomSynthesizer"),
}
