"""ALBERT (Lan et al. 2019), with and without its sentence-order head."""

from __future__ import annotations

from scaling.interop.formats.bert import BERT, SIZE
from scaling.interop.template import ACTIVATIONS, Format, blank, table
from scaling.schema import overlay

_WIDTH = blank("embedding_size", default=128)
_ACTIVATION = blank("hidden_act", default="gelu_new", values=ACTIVATIONS)
_DROPOUT = blank("hidden_dropout_prob", default=0.0)


class ALBERT(Format):
    """ALBERT: BERT of one block run again and again, with narrow embeddings. (Lan et al. 2019)

    transformers drops nothing behind its feed-forward layers; ours drops behind both branches alike. No released size
    has dropout.
    """

    architecture = "AlbertForPreTraining"
    config = {"model_type": "albert", "num_hidden_groups": 1, "inner_group_num": 1, "tie_word_embeddings": True}
    model = overlay(
        BERT.model,
        {
            "embedding": {**BERT.model["embedding"], "kind": "Projected", "width": _WIDTH, "dropout": _DROPOUT},
            "block": {
                "residual": {"kind": "Post", "dropout": _DROPOUT},
                "mixer": {"dropout": blank("attention_probs_dropout_prob", default=0.0)},
                "channel": {"activation": _ACTIVATION},
            },
            "stack": {"kind": "Sequential", "norm": "NoNorm", "distinct": 1},
            "head": {"activation": _ACTIVATION, "width": _WIDTH},
            "sentence": {
                "kind": "NextSentence",
                "activation": "Tanh",
                "dropout": blank("classifier_dropout_prob", default=0.1),
            },
        },
    )
    size = {**SIZE, "length": blank("max_position_embeddings", default=512)}
    names = table(
        """
        encoder.embedding.table                              <part>.embeddings.word_embeddings.weight
        encoder.embedding.segments                           <part>.embeddings.token_type_embeddings.weight
        encoder.embedding.norm.{gain,bias}                   <part>.embeddings.LayerNorm.{weight,bias}
        encoder.embedding.projection.{weight,bias}           <part>.encoder.embedding_hidden_mapping_in.{weight,bias}
        encoder.stack.positions.0.table                      <part>.embeddings.position_embeddings.weight
        <block>.mixer.piece.<maps>.{weight,bias}             <layer>.attention.{query,key,value,dense}.{weight,bias}
        <block>.mixer.norm.{gain,bias}                       <layer>.attention.LayerNorm.{weight,bias}
        <block>.channel.piece.{hidden,out}.{weight,bias}     <layer>.{ffn,ffn_output}.{weight,bias}
        <block>.channel.norm.{gain,bias}                     <layer>.full_layer_layer_norm.{weight,bias}
        head.dense.{weight,bias}                             predictions.dense.{weight,bias}
        head.norm.{gain,bias}                                predictions.LayerNorm.{weight,bias}
        head.bias                                            predictions.bias
        sentence.pool.{weight,bias}                          <part>.pooler.{weight,bias}
        sentence.out.{weight,bias}                           sop_classifier.classifier.{weight,bias}
        """,
        maps="{query,key,value,out}",
        block="encoder.stack.blocks.0.branches",
        layer="<part>.encoder.albert_layer_groups.0.albert_layers.0",
        part="albert",
    )
    prefix = "albert."
    copies = {
        "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
        "predictions.decoder.bias": "predictions.bias",
    }
    derived = ("albert.embeddings.position_ids",)


class MaskedALBERT(ALBERT):
    """ALBERT without its sentence-order head. (Lan et al. 2019)"""

    architecture = "AlbertForMaskedLM"
    model = {**ALBERT.model, "sentence": None}
