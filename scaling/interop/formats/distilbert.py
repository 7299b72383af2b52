"""DistilBERT (Sanh et al. 2019), pretrained and with the heads of tasks."""

from __future__ import annotations

from scaling.interop.formats.bert import MaskedBERT
from scaling.interop.formats.heads import OUT, with_heads
from scaling.interop.template import ACTIVATIONS, Format, blank, table, tied
from scaling.schema import overlay

_ACTIVATION = blank("activation", default="gelu", values=ACTIVATIONS)
_NORM = {"kind": "LayerNorm", "eps": 1e-12}
_DROPOUT = blank("dropout", default=0.1)


_BODY = """
    encoder.embedding.table                                  distilbert.embeddings.word_embeddings.weight
    encoder.embedding.norm.{gain,bias}                       distilbert.embeddings.LayerNorm.{weight,bias}
    encoder.stack.positions.0.table                          distilbert.embeddings.position_embeddings.weight
    <block>.mixer.piece.{query,key,value,out}.{weight,bias}  <layer>.attention.{q,k,v,out}_lin.{weight,bias}
    <block>.mixer.norm.{gain,bias}                           <layer>.sa_layer_norm.{weight,bias}
    <block>.channel.piece.{hidden,out}.{weight,bias}         <layer>.ffn.{lin1,lin2}.{weight,bias}
    <block>.channel.norm.{gain,bias}                         <layer>.output_layer_norm.{weight,bias}
"""
_PLACES = {"block": "encoder.stack.blocks.*.branches", "layer": "distilbert.transformer.layer.*"}


class DistilBERT(Format):
    """DistilBERT: BERT without segments. (Sanh et al. 2019)

    transformers drops nothing behind its attention; ours drops behind both branches alike.
    """

    architecture = "DistilBertForMaskedLM"
    config = {"model_type": "distilbert", "sinusoidal_pos_embds": False}
    model = overlay(
        MaskedBERT.model,
        {
            "embedding": {"kind": "Token", "norm": _NORM, "dropout": _DROPOUT},
            "block": {
                "norm": _NORM,
                "residual": {"kind": "Post", "dropout": _DROPOUT},
                "mixer": {"dropout": blank("attention_dropout", default=0.1)},
                "channel": {"activation": _ACTIVATION},
            },
            "head": {"activation": _ACTIVATION, "norm": _NORM},
            "tie": tied("encoder"),
        },
    )
    size = {
        "width": blank("dim"),
        "layers": blank("n_layers"),
        "heads": blank("n_heads"),
        "hidden": blank("hidden_dim"),
        "vocabulary": blank("vocab_size"),
        "length": blank("max_position_embeddings", default=512),
    }
    names = table(
        _BODY
        + """
        head.dense.{weight,bias}                                 vocab_transform.{weight,bias}
        head.norm.{gain,bias}                                    vocab_layer_norm.{weight,bias}
        head.{weight,bias}                                       vocab_projector.{weight,bias}
        """,
        **_PLACES,
    )
    prefix = "distilbert."
    copies = {"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"}
    derived = ("distilbert.embeddings.position_ids",)


# transformers drops what the head of a span reads; ours does not.
ClassifyingDistilBERT, TaggingDistilBERT, AnsweringDistilBERT = with_heads(
    DistilBERT,
    _BODY,
    _PLACES,
    {"activation": "ReLU", "dropout": blank("seq_classif_dropout", default=0.2)},
    "head.pool.{weight,bias}   pre_classifier.{weight,bias}\n" + OUT,
    _DROPOUT,
)
