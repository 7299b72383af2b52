"""OPT (Zhang et al. 2022), and Galactica (Taylor et al. 2022), which is OPT with GeLU and without biases."""

from __future__ import annotations

from scaling.interop.template import ACTIVATIONS, Format, blank, switch, table, tied

_DROPOUT = blank("dropout", default=0.1)
_BIAS = switch("enable_bias", default=True)
_AFFINE = switch("layer_norm_elementwise_affine", default=True)
_NORM = {"kind": "LayerNorm", "gain": _AFFINE, "bias": _AFFINE}


class OPT(Format):
    """OPT: pre-norm, ReLU, positions counted from 2, one table. (Zhang et al. 2022)

    But for the size of 350M, which is post-norm and has a narrower table than stream.
    """

    architecture = "OPTForCausalLM"
    config = {
        "model_type": "opt",
        "do_layer_norm_before": True,
        "_remove_final_layer_norm": False,
        "layerdrop": 0.0,
    }
    model = {
        "kind": "Decoder",
        "embedding": "Token",
        "position": {"kind": "Learned", "offset": 2},
        "pattern": "Causal",
        "block": {
            "kind": "Serial",
            "branches": ["mixer", "channel"],
            "norm": _NORM,
            "residual": {"kind": "Pre", "dropout": _DROPOUT},
            "mixer": {"kind": "Attention", "bias": _BIAS, "dropout": blank("attention_dropout", default=0.0)},
            "channel": {
                "kind": "Dense",
                "activation": blank("activation_function", default="relu", values=ACTIVATIONS),
                "bias": _BIAS,
            },
        },
        "stack": {"kind": "Sequential", "norm": _NORM},
        "head": "Linear",
        "tie": tied("decoder"),
    }
    size = {
        "width": blank("hidden_size", "word_embed_proj_dim"),
        "layers": blank("num_hidden_layers"),
        "heads": blank("num_attention_heads"),
        "hidden": blank("ffn_dim"),
        "vocabulary": blank("vocab_size"),
        "length": blank("max_position_embeddings", default=2048),
    }
    names = table(
        """
        decoder.embedding.table                                  model.decoder.embed_tokens.weight
        decoder.stack.positions.0.table                          model.decoder.embed_positions.weight
        <block>.mixer.norm.{gain,bias}                           <layer>.self_attn_layer_norm.{weight,bias}
        <block>.mixer.piece.{query,key,value,out}.{weight,bias}  <layer>.self_attn.<qkvo>.{weight,bias}
        <block>.channel.norm.{gain,bias}                         <layer>.final_layer_norm.{weight,bias}
        <block>.channel.piece.{hidden,out}.{weight,bias}         <layer>.{fc1,fc2}.{weight,bias}
        decoder.stack.norm.{gain,bias}                           model.decoder.final_layer_norm.{weight,bias}
        head.weight                                              lm_head.weight
        """,
        block="decoder.stack.blocks.*.branches",
        layer="model.decoder.layers.*",
        qkvo="{q_proj,k_proj,v_proj,out_proj}",
    )
    prefix = "model."
    copies = {"lm_head.weight": "model.decoder.embed_tokens.weight"}
