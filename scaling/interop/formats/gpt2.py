"""GPT-2 (Radford et al. 2019), and GPT-1 (2018), whose norms come after the branches."""

from __future__ import annotations

from typing import Any

from scaling.interop.template import ACTIVATIONS, Format, blank, table

_NORM = {"kind": "LayerNorm", "eps": blank("layer_norm_epsilon", default=1e-5)}

_BLOCKS = """
    <block>.mixer.norm.{gain,bias}                           transformer.h.*.ln_1.{weight,bias}
    <block>.mixer.piece.{query+key+value}.weight             transformer.h.*.attn.c_attn.weight       transposed
    <block>.mixer.piece.{query+key+value}.bias               transformer.h.*.attn.c_attn.bias
    <block>.mixer.piece.out.weight                           transformer.h.*.attn.c_proj.weight       transposed
    <block>.mixer.piece.out.bias                             transformer.h.*.attn.c_proj.bias
    <block>.channel.norm.{gain,bias}                         transformer.h.*.ln_2.{weight,bias}
    <block>.channel.piece.hidden.weight                      transformer.h.*.mlp.c_fc.weight          transposed
    <block>.channel.piece.hidden.bias                        transformer.h.*.mlp.c_fc.bias
    <block>.channel.piece.out.weight                         transformer.h.*.mlp.c_proj.weight        transposed
    <block>.channel.piece.out.bias                           transformer.h.*.mlp.c_proj.bias
"""


def _model(activation: Any, residual: str, last: Any) -> dict[str, Any]:
    return {
        "kind": "Decoder",
        "embedding": {"kind": "Token", "dropout": blank("embd_pdrop", default=0.1)},
        "position": "Learned",
        "pattern": "Causal",
        "block": {
            "kind": "Serial",
            "branches": ["mixer", "channel"],
            "norm": _NORM,
            "residual": {"kind": residual, "dropout": blank("resid_pdrop", default=0.1)},
            "mixer": {"kind": "Attention", "bias": True, "dropout": blank("attn_pdrop", default=0.1)},
            "channel": {"kind": "Dense", "activation": activation, "bias": True},
        },
        "stack": {"kind": "Sequential", "norm": last},
        "head": "Linear",
        "tie": ["decoder", "head"],
    }


_SIZE = {
    "width": blank("n_embd"),
    "layers": blank("n_layer"),
    "heads": blank("n_head"),
    "vocabulary": blank("vocab_size"),
    "length": blank("n_positions"),
}


class GPT2(Format):
    """GPT-2: pre-norm, learned positions, one table. (Radford et al. 2019)"""

    architecture = "GPT2LMHeadModel"
    config = {
        "model_type": "gpt2",
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "reorder_and_upcast_attn": False,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
    }
    model = _model(blank("activation_function", default="gelu_new", values=ACTIVATIONS), "Pre", _NORM)
    size = {**_SIZE, "hidden": blank("n_inner", default=None)}
    names = table(
        """
        decoder.embedding.table                              transformer.wte.weight
        decoder.stack.positions.0.table                      transformer.wpe.weight
        decoder.stack.norm.{gain,bias}                       transformer.ln_f.{weight,bias}
        """
        + _BLOCKS,
        block="decoder.stack.blocks.*.branches",
    )
    prefix = "transformer."
    copies = {"lm_head.weight": "transformer.wte.weight"}
    derived = ("*.attn.bias", "*.attn.masked_bias")


class GPT1(Format):
    """GPT-1: GPT-2 with norms behind the branches. (Radford et al. 2018)"""

    architecture = "OpenAIGPTLMHeadModel"
    config = {"model_type": "openai-gpt", "tie_word_embeddings": True}
    # Its "gelu" has always been the tanh form.
    model = _model(
        blank("afn", default="gelu", values={"gelu": ACTIVATIONS["gelu_new"], "relu": ACTIVATIONS["relu"]}),
        "Post",
        "NoNorm",
    )
    size = _SIZE
    names = table(
        """
        decoder.embedding.table                              transformer.tokens_embed.weight
        decoder.stack.positions.0.table                      transformer.positions_embed.weight
        """
        + _BLOCKS,
        block="decoder.stack.blocks.*.branches",
    )
    prefix = "transformer."
    copies = {"lm_head.weight": "transformer.tokens_embed.weight"}
    derived = ("*.attn.bias", "*.position_ids")
