"""BLOOM (Le Scao et al. 2022)."""

from __future__ import annotations

from scaling.interop.template import ACTIVATIONS, Format, blank, table, tied

_NORM = {"kind": "LayerNorm", "eps": blank("layer_norm_epsilon", default=1e-5)}


class BLOOM(Format):
    """BLOOM: pre-norm, ALiBi, a norm on the embeddings, one table. (Le Scao et al. 2022)"""

    architecture = "BloomForCausalLM"
    config = {"model_type": "bloom", "apply_residual_connection_post_layernorm": False}
    model = {
        "kind": "Decoder",
        "embedding": {"kind": "Token", "norm": _NORM},
        "position": "ALiBi",
        "pattern": "Causal",
        "block": {
            "kind": "Serial",
            "branches": ["mixer", "channel"],
            "norm": _NORM,
            "residual": {"kind": "Pre", "dropout": blank("hidden_dropout", default=0.0)},
            "mixer": {"kind": "Attention", "bias": True, "dropout": blank("attention_dropout", default=0.0)},
            "channel": {"kind": "Dense", "activation": ACTIVATIONS["gelu_new"], "bias": True},
        },
        "stack": {"kind": "Sequential", "norm": _NORM},
        "head": "Linear",
        "tie": tied("decoder"),
    }
    size = {
        "width": blank("hidden_size", "n_embed"),
        "layers": blank("n_layer", "num_hidden_layers"),
        "heads": blank("n_head", "num_attention_heads"),
        "vocabulary": blank("vocab_size"),
        "length": blank("seq_length", default=2048),
    }
    names = table(
        """
        decoder.embedding.table                                transformer.word_embeddings.weight
        decoder.embedding.norm.{gain,bias}                     transformer.word_embeddings_layernorm.{weight,bias}
        <block>.mixer.norm.{gain,bias}                         <layer>.input_layernorm.{weight,bias}
        <block>.mixer.piece.{query+key+value}.{weight,bias}    <layer>.self_attention.<joined>.{weight,bias} by_head
        <block>.mixer.piece.out.{weight,bias}                  <layer>.self_attention.dense.{weight,bias}
        <block>.channel.norm.{gain,bias}                       <layer>.post_attention_layernorm.{weight,bias}
        <block>.channel.piece.hidden.{weight,bias}             <layer>.mlp.dense_h_to_4h.{weight,bias}
        <block>.channel.piece.out.{weight,bias}                <layer>.mlp.dense_4h_to_h.{weight,bias}
        decoder.stack.norm.{gain,bias}                         transformer.ln_f.{weight,bias}
        head.weight                                            lm_head.weight
        """,
        block="decoder.stack.blocks.*.branches",
        layer="transformer.h.*",
        joined="query_key_value",
    )
    prefix = "transformer."
    copies = {"lm_head.weight": "transformer.word_embeddings.weight"}
