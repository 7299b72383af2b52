"""BART (Lewis et al. 2019) and Marian (Junczys-Dowmunt et al. 2018): Vaswani's shape with biases throughout."""

from __future__ import annotations

from typing import Any

from scaling.interop.template import ACTIVATIONS, Format, blank, table

_DROPOUT = blank("dropout", default=0.1)
_ATTENTION = {"bias": True, "dropout": blank("attention_dropout", default=0.0)}


def _model(position: Any, norm: Any, head: Any) -> dict[str, Any]:
    return {
        "kind": "EncoderDecoder",
        "embedding": {
            "kind": "Token",
            "scale": blank("scale_embedding", default=False, values={False: "none", True: "sqrt_width"}),
            "norm": norm,
            "dropout": _DROPOUT,
        },
        "position": position,
        "pattern": "Bidirectional",
        "block": {
            "kind": "Serial",
            "branches": ["mixer", "channel"],
            "norm": "LayerNorm",
            "residual": {"kind": "Post", "dropout": _DROPOUT},
            "mixer": {"kind": "Attention", **_ATTENTION},
            "channel": {
                "kind": "Dense",
                "activation": blank("activation_function", default="gelu", values=ACTIVATIONS),
                "bias": True,
                "dropout": blank("activation_dropout", default=0.0),
            },
        },
        "stack": {"kind": "Sequential", "norm": "NoNorm"},
        "encoder": {},
        "decoder": {
            "pattern": "Causal",
            "block": {"branches": ["mixer", "cross", "channel"], "cross": {"kind": "CrossAttention", **_ATTENTION}},
        },
        "head": head,
        "tie": ["encoder", "decoder", "head"],
    }


_SIZE = {
    "width": blank("d_model"),
    "vocabulary": blank("vocab_size"),
    "length": blank("max_position_embeddings", default=1024),
    **{
        tower: {
            "layers": blank(f"{tower}_layers"),
            "heads": blank(f"{tower}_attention_heads"),
            "hidden": blank(f"{tower}_ffn_dim"),
        }
        for tower in ("encoder", "decoder")
    },
}

_NAMES = """
    encoder.embedding.table                          model.shared.weight
    <tower>.mixer.piece.<maps>.{weight,bias}         <layer>.self_attn.<qkvo>.{weight,bias}
    <tower>.mixer.norm.{gain,bias}                   <layer>.self_attn_layer_norm.{weight,bias}
    <tower>.cross.piece.<maps>.{weight,bias}         <layer>.encoder_attn.<qkvo>.{weight,bias}
    <tower>.cross.norm.{gain,bias}                   <layer>.encoder_attn_layer_norm.{weight,bias}
    <tower>.channel.piece.{hidden,out}.{weight,bias} <layer>.{fc1,fc2}.{weight,bias}
    <tower>.channel.norm.{gain,bias}                 <layer>.final_layer_norm.{weight,bias}
"""
_PARTS = {
    "tower": "{encoder,decoder}.stack.blocks.*.branches",
    "layer": "model.{encoder,decoder}.layers.*",
    "maps": "{query,key,value,out}",
    "qkvo": "{q_proj,k_proj,v_proj,out_proj}",
}
_CONFIG = {
    "is_encoder_decoder": True,
    "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0,
    "tie_word_embeddings": True,
}
_TABLES = ("lm_head", "model.encoder.embed_tokens", "model.decoder.embed_tokens")
_COPIES = {f"{name}.weight": "model.shared.weight" for name in _TABLES}


class BART(Format):
    """BART: post-norm, learned positions, one table. (Lewis et al. 2019)"""

    architecture = "BartForConditionalGeneration"
    # Releases before 2021 could leave these out or turn them round.
    config = {
        "model_type": "bart",
        "normalize_before": False,
        "add_final_layer_norm": False,
        "normalize_embedding": True,
        "static_position_embeddings": False,
        **_CONFIG,
    }
    model = _model({"kind": "Learned", "offset": 2}, "LayerNorm", "Linear")
    size = _SIZE
    names = table(
        _NAMES
        + """
        {encoder,decoder}.embedding.norm.{gain,bias}     model.{encoder,decoder}.layernorm_embedding.{weight,bias}
        {encoder,decoder}.stack.positions.0.table        model.{encoder,decoder}.embed_positions.weight
        """,
        **_PARTS,
    )
    prefix = "model."
    copies = _COPIES
    zeros = ("final_logits_bias",)


class Marian(Format):
    """Marian: post-norm, sinusoids, one table and a bias onto it. (Junczys-Dowmunt et al. 2018)"""

    architecture = "MarianMTModel"
    config = {
        "model_type": "marian",
        "normalize_before": False,
        "add_final_layer_norm": False,
        "normalize_embedding": False,
        "share_encoder_decoder_embeddings": True,
        **_CONFIG,
    }
    model = _model({"kind": "Sinusoidal", "layout": "halves"}, None, {"kind": "Linear", "bias": True})
    size = _SIZE
    names = table(
        _NAMES
        + """
        head.bias                                        final_logits_bias                                  row
        """,
        **_PARTS,
    )
    prefix = "model."
    copies = _COPIES
    derived = ("model.*.embed_positions.weight",)
