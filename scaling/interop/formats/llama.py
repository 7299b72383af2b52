"""Llama (Touvron et al. 2023) and its relatives, and GPT-NeoX (Black et al. 2022), which is Pythia's format."""

from __future__ import annotations

from scaling.interop.template import ACTIVATIONS, Format, blank, switch, table, tied
from scaling.schema import overlay

_RMS = {"kind": "RMSNorm", "eps": blank("rms_norm_eps", default=1e-6)}
_LAYER = {"kind": "LayerNorm", "eps": blank("layer_norm_eps", default=1e-5)}
_TIED = tied("decoder", default=False)
_DROPOUT = blank("hidden_dropout", default=0.0)

_SIZE = {
    "width": blank("hidden_size"),
    "layers": blank("num_hidden_layers"),
    "heads": blank("num_attention_heads"),
    "hidden": blank("intermediate_size"),
    "vocabulary": blank("vocab_size"),
    "length": blank("max_position_embeddings", default=2048),
}


class Llama(Format):
    """Llama: RMSNorm, SwiGLU, rotary positions. (Touvron et al. 2023)"""

    architecture = "LlamaForCausalLM"
    config = {"model_type": "llama", "rope_parameters.rope_type": "default", "rope_scaling": None}
    model = {
        "kind": "Decoder",
        "embedding": "Token",
        "position": {
            "kind": "Rotary",
            "base": blank("rope_parameters.rope_theta", "rope_theta", default=10000.0),
        },
        "pattern": "Causal",
        "block": {
            "kind": "Serial",
            "branches": ["mixer", "channel"],
            "norm": _RMS,
            "residual": "Pre",
            "mixer": {
                "kind": "Attention",
                "bias": switch("attention_bias", default=False),
                "dropout": blank("attention_dropout", default=0.0),
            },
            "channel": {
                "kind": "Gated",
                "activation": blank("hidden_act", default="silu", values=ACTIVATIONS),
                "bias": switch("mlp_bias", default=False),
            },
        },
        "stack": {"kind": "Sequential", "norm": _RMS},
        "head": "Linear",
        "tie": _TIED,
    }
    size = {
        **_SIZE,
        "key_heads": blank("num_key_value_heads", "num_attention_heads"),
        "head_width": blank("head_dim", default=None),
    }
    names = table(
        """
        decoder.embedding.table                                  model.embed_tokens.weight
        <block>.mixer.norm.gain                                  <layer>.input_layernorm.weight
        <block>.mixer.piece.{query,key,value,out}.weight         <layer>.self_attn.{q,k,v,o}_proj.weight
        <block>.mixer.piece.{query,key,value,out}.bias           <layer>.self_attn.{q,k,v,o}_proj.bias
        <block>.channel.norm.gain                                <layer>.post_attention_layernorm.weight
        <block>.channel.piece.{gate,hidden,out}.weight           <layer>.mlp.{gate,up,down}_proj.weight
        <block>.channel.piece.{gate,hidden,out}.bias             <layer>.mlp.{gate,up,down}_proj.bias
        decoder.stack.norm.gain                                  model.norm.weight
        head.weight                                              lm_head.weight
        """,
        block="decoder.stack.blocks.*.branches",
        layer="model.layers.*",
    )
    prefix = "model."
    copies = {"lm_head.weight": "model.embed_tokens.weight"}
    derived = ("*.rotary_emb.inv_freq",)


class Mistral(Llama):
    """Llama without biases, each token of which sees a window. (Jiang et al. 2023)

    The first release's format, with `sliding_window`; without one the model is Llama's, and is written so.
    """

    architecture = "MistralForCausalLM"
    config = {**Llama.config, "model_type": "mistral"}
    model = overlay(
        Llama.model,
        {
            "pattern": {"kind": "Window", "size": blank("sliding_window"), "pattern": "Causal"},
            "block": {"mixer": {"bias": False}, "channel": {"bias": False}},
        },
    )


class WindowlessMistral(Mistral):
    """Mistral from its second release on, whose tokens see all before them. (Jiang et al. 2023)"""

    config = {**Mistral.config, "sliding_window": None}
    model = overlay(Mistral.model, {"pattern": {"kind": "Causal"}})


class Qwen2(Llama):
    """Llama with biases on queries, keys and values. (Yang et al. 2024)"""

    architecture = "Qwen2ForCausalLM"
    config = {**Llama.config, "model_type": "qwen2", "use_sliding_window": False}
    model = overlay(Llama.model, {"block": {"mixer": {"bias": "qkv"}, "channel": {"bias": False}}})


_CENTERED = {**_RMS, "gain": "zero_centered"}
# Releases call it gelu, and have always computed the tanh form.
_TANH = {"gelu_pytorch_tanh": ACTIVATIONS["gelu_pytorch_tanh"], "gelu": ACTIVATIONS["gelu_pytorch_tanh"]}


class Gemma(Llama):
    """Llama with GeGLU, gains of 1 + w, one table, and embeddings multiplied by √w. (Gemma Team 2024)"""

    architecture = "GemmaForCausalLM"
    config = {**Llama.config, "model_type": "gemma", "use_bidirectional_attention": False}
    model = overlay(
        Llama.model,
        {
            "embedding": {"kind": "Token", "scale": "sqrt_width"},
            "block": {
                "norm": _CENTERED,
                "channel": {
                    "activation": blank("hidden_act", default="gelu", values={**_TANH, **ACTIVATIONS, **_TANH}),
                    "bias": False,
                },
            },
            "stack": {"kind": "Sequential", "norm": _CENTERED},
            "tie": tied("decoder"),
        },
    )


class GPTNeoX(Format):
    """GPT-NeoX and Pythia: parallel branches, partly rotary positions. (Black et al. 2022)"""

    architecture = "GPTNeoXForCausalLM"
    config = {"model_type": "gpt_neox", "rope_parameters.rope_type": "default", "rope_scaling": None}
    model = {
        "kind": "Decoder",
        "embedding": {"kind": "Token", "dropout": _DROPOUT},
        "position": {
            "kind": "Rotary",
            "base": blank("rope_parameters.rope_theta", "rotary_emb_base", default=10000.0),
            "part": blank("rope_parameters.partial_rotary_factor", "rotary_pct", default=0.25),
        },
        "pattern": "Causal",
        "block": {
            "kind": blank("use_parallel_residual", default=True, values={True: "Parallel", False: "Serial"}),
            "branches": ["mixer", "channel"],
            "norm": _LAYER,
            "residual": {"kind": "Pre", "dropout": _DROPOUT},
            "mixer": {
                "kind": "Attention",
                "bias": switch("attention_bias", default=True),
                "dropout": blank("attention_dropout", default=0.0),
            },
            "channel": {
                "kind": "Dense",
                "activation": blank("hidden_act", default="gelu", values=ACTIVATIONS),
                "bias": True,
            },
        },
        "stack": {"kind": "Sequential", "norm": _LAYER},
        "head": "Linear",
        "tie": _TIED,
    }
    size = _SIZE
    names = table(
        """
        decoder.embedding.table                                  gpt_neox.embed_in.weight
        <block>.mixer.norm.{gain,bias}                           <layer>.input_layernorm.{weight,bias}
        <block>.mixer.piece.{query+key+value}.{weight,bias}      <layer>.attention.query_key_value.{weight,bias} by_head
        <block>.mixer.piece.out.{weight,bias}                    <layer>.attention.dense.{weight,bias}
        <block>.channel.norm.{gain,bias}                         <layer>.post_attention_layernorm.{weight,bias}
        <block>.channel.piece.hidden.{weight,bias}               <layer>.mlp.dense_h_to_4h.{weight,bias}
        <block>.channel.piece.out.{weight,bias}                  <layer>.mlp.dense_4h_to_h.{weight,bias}
        decoder.stack.norm.{gain,bias}                           gpt_neox.final_layer_norm.{weight,bias}
        head.weight                                              embed_out.weight
        """,
        block="decoder.stack.blocks.*.branches",
        layer="gpt_neox.layers.*",
    )
    prefix = "gpt_neox."
    derived = ("*.attention.bias", "*.attention.masked_bias", "*.attention.rotary_emb.inv_freq")
