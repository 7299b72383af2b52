"""T5 v1.0 (Raffel et al. 2019) and v1.1 (Shazeer 2020), whose feed-forward layers are gated and whose output table is
its own.
"""

from __future__ import annotations

from typing import Any

from scaling.interop.template import ACTIVATIONS, Format, Name, blank, table

_NORM = {"kind": "RMSNorm", "eps": blank("layer_norm_epsilon", default=1e-6)}
_DROPOUT = blank("dropout_rate", default=0.1)


def _model(channel: dict[str, Any], tie: list[str]) -> dict[str, Any]:
    return {
        "kind": "EncoderDecoder",
        "embedding": {"kind": "Token", "dropout": _DROPOUT},
        "position": {
            "kind": "RelativeBias",
            "buckets": blank("relative_attention_num_buckets", default=32),
            "distance": blank("relative_attention_max_distance", default=128),
        },
        "pattern": "Bidirectional",
        "block": {
            "kind": "Serial",
            "branches": ["mixer", "channel"],
            "norm": _NORM,
            "residual": {"kind": "Pre", "dropout": _DROPOUT},
            "mixer": {"kind": "Attention", "scale": "none", "dropout": _DROPOUT},
            "channel": {**channel, "bias": False, "dropout": _DROPOUT},
        },
        "stack": {"kind": "Sequential", "norm": _NORM, "dropout": _DROPOUT},
        "encoder": {},
        "decoder": {
            "pattern": "Causal",
            "block": {
                "branches": ["mixer", "cross", "channel"],
                "cross": {"kind": "CrossAttention", "scale": "none", "dropout": _DROPOUT},
            },
        },
        "head": {
            "kind": "Linear",
            # The first key is the newer one; the second also stated whether the tables were tied.
            "scale": blank(
                "scale_decoder_outputs",
                "tie_word_embeddings",
                default=True,
                values={True: "inverse_sqrt_width", False: "none"},
            ),
        },
        "tie": tie,
    }


_SIZE = {
    "width": blank("d_model"),
    "heads": blank("num_heads"),
    "head_width": blank("d_kv"),
    "hidden": blank("d_ff"),
    "vocabulary": blank("vocab_size"),
    "length": blank("n_positions", default=512),
    "encoder": {"layers": blank("num_layers")},
    "decoder": {"layers": blank("num_decoder_layers", "num_layers")},
}


def _names(ours: str, theirs: str) -> tuple[Name, ...]:
    """The table, with what the feed-forward layer's first matrices are called."""
    return table(
        """
        encoder.embedding.table                      shared.weight
        <tower>.stack.positions.0.table              <tower>.<first>.relative_attention_bias.weight
        <tower>.<block>.mixer.norm.gain              <tower>.block.*.layer.0.layer_norm.weight
        <tower>.<block>.mixer.piece.<maps>           <tower>.block.*.layer.0.SelfAttention.<qkvo>
        decoder.<block>.cross.norm.gain              decoder.block.*.layer.1.layer_norm.weight
        decoder.<block>.cross.piece.<maps>           decoder.block.*.layer.1.EncDecAttention.<qkvo>
        <tower>.<block>.channel.norm.gain            <last>.layer_norm.weight
        <tower>.<block>.channel.piece.<ours>.weight  <last>.DenseReluDense.<theirs>.weight
        <tower>.stack.norm.gain                      <tower>.final_layer_norm.weight
        head.weight                                  lm_head.weight
        """,
        block="stack.blocks.*.branches",
        first="block.0.layer.0.SelfAttention",
        tower="{encoder,decoder}",
        last="{encoder.block.*.layer.1,decoder.block.*.layer.2}",
        maps="{query,key,value,out}.weight",
        qkvo="{q,k,v,o}.weight",
        ours=ours,
        theirs=theirs,
    )


# A table that is not in the file is the shared one: releases of transformers differ in what they leave out.
_COPIES = {f"{name}.weight": "shared.weight" for name in ("encoder.embed_tokens", "decoder.embed_tokens", "lm_head")}


class T5(Format):
    """T5 v1.0: pre-norm, relative bias, one table. (Raffel et al. 2019)"""

    architecture = "T5ForConditionalGeneration"
    config = {"model_type": "t5", "feed_forward_proj": "relu", "is_encoder_decoder": True}
    model = _model({"kind": "Dense", "activation": "ReLU"}, ["encoder", "decoder", "head"])
    size = _SIZE
    names = _names("{hidden,out}", "{wi,wo}")
    copies = _COPIES
    omitted = ("lm_head.weight",)


class T5v1_1(T5):
    """T5 v1.1: gated feed-forward layers, an output table of its own. (Shazeer 2020)"""

    config = {**T5.config, "feed_forward_proj": "gated-gelu"}
    model = _model({"kind": "Gated", "activation": ACTIVATIONS["gelu_new"]}, ["encoder", "decoder"])
    names = _names("{gate,hidden,out}", "{wi_0,wi_1,wo}")
