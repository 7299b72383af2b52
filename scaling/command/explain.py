"""What a name in a config means: a slot and its kinds, each with its formula, its keys, and the paper it comes from.

scaling explain                      every slot with its kinds
scaling explain block.channel        the kinds of one slot
scaling explain Rotary               one kind
scaling explain train                the keys of a section that holds no pieces
scaling explain size                 the keys of a size, and the sizes that have names
scaling explain law                  every scaling law, as `law:` of a study and `scaling fit --law` name them
scaling explain chinchilla           one law, with its parameters
scaling explain study                the keys of a study's file
scaling explain sweep                the keys of a sweep's file
scaling explain table                the keys of a table's file
scaling explain held_out             one key of a study, a sweep or a table
scaling explain quickstart           a shipped study, table, model, size or data set, or a command
scaling explain mixer --extend my.py with the kinds of a module of yours among them
"""

from __future__ import annotations

import argparse
import json

from scaling.api.explain import explain


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="a slot, a dotted key that ends in one, a kind, a section, a law"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(arguments: argparse.Namespace) -> None:
    explanation = explain(arguments.name)
    document = json.dumps(explanation.document, indent=2, ensure_ascii=False)
    print(document if arguments.json else explanation)
