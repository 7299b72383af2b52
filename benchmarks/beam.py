"""Beam search beside transformers' on one model: sentences per second, and whether both write the same tokens.

    OMP_NUM_THREADS=1 python benchmarks/beam.py [--sentences 64] [--rounds 5] [--width 256] [--layers 3]

A Transformer of Marian's shape is drawn, with a bias on the token that ends a text, by which texts end at several
lengths. It is exported as transformers' MarianMTModel, and both read the same padded sentences. Rounds alternate; the
median of their ratios counts. Beams are ranked by log p alone (penalty 0), which both compute.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from typing import Any

import torch

from scaling.config.compose import load
from scaling.evaluation.generate import generate, prompt
from scaling.evaluation.strategy import Beam
from scaling.interop import huggingface, weights
from scaling.interop.huggingface import Saved
from scaling.model.tuned import sections
from scaling.training.parametrization import Standard, initialise

PAD, BOS, EOS, FIRST = 0, 1, 2, 4
IDS = {"pad": PAD, "bos": BOS, "eos": EOS, "start": BOS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("sentences", 64), ("rounds", 5), ("width", 256), ("layers", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--end", type=float, default=-2.0, help="bias of the token that ends a text (-2)")
    parser.add_argument("--beams", type=int, default=4)
    arguments = parser.parse_args()
    size = f"{{width: {arguments.width}, layers: {arguments.layers}, heads: 4, hidden: {4 * arguments.width}, "
    config = load("marian", [f"size={size}vocabulary: {arguments.vocabulary}, length: 128}}", "train.smoothing=0"])
    with torch.device("meta"):
        model = config.build("model", config["size"])
    model = initialise(model, Standard(), seed=0)
    with torch.no_grad():
        bias = model.get_parameter("head.bias")
        bias.normal_(0, 0.5, generator=torch.Generator().manual_seed(2))
        bias[EOS] = arguments.end
    model.eval()
    tensors = {name: tensor.detach().clone() for name, tensor in weights.of(model).items()}
    from transformers import MarianMTModel

    with tempfile.TemporaryDirectory() as folder:
        huggingface.write(folder, Saved(sections(config.tree), tensors, IDS))
        theirs: Any = MarianMTModel.from_pretrained(folder).eval()
    draw = torch.Generator().manual_seed(0)
    lengths = torch.randint(6, 25, (arguments.sentences,), generator=draw).tolist()
    rows = [
        [*torch.randint(FIRST, arguments.vocabulary, (length,), generator=draw).tolist(), EOS] for length in lengths
    ]
    most = max(lengths) + 8
    longest = max(map(len, rows))  # padded on the right: Marian counts positions from the first column
    source = torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])
    batch = prompt(torch.full((len(rows), 1), BOS), source=source, source_documents=(source != PAD).long())

    def ours() -> list[list[int]]:
        written = generate(model, batch, Beam(beams=arguments.beams, penalty=0.0), steps=most, stop={EOS})
        return [row[0].tokens for row in written]

    @torch.inference_mode()
    def transformers() -> list[list[int]]:
        made = theirs.generate(
            input_ids=source,
            attention_mask=batch.source_documents,
            num_beams=arguments.beams,
            max_new_tokens=most,
            do_sample=False,
            length_penalty=0.0,
            early_stopping=False,
            decoder_start_token_id=BOS,
            eos_token_id=EOS,
            pad_token_id=PAD,
            forced_eos_token_id=None,
            bad_words_ids=None,
        )
        return [[token for token in row[1:].tolist() if token not in (EOS, PAD)] for row in made]

    seconds: dict[str, list[float]] = {"ours": [], "transformers": []}
    results: dict[str, list[list[int]]] = {}
    for _ in range(arguments.rounds):
        for name, run in (("ours", ours), ("transformers", transformers)):
            began = time.process_time()
            results[name] = run()
            seconds[name].append(time.process_time() - began)
    same = sum(a == b for a, b in zip(results["ours"], results["transformers"], strict=True))
    ratios = [b / a for a, b in zip(seconds["ours"], seconds["transformers"], strict=True)]
    for name, own in seconds.items():
        print(f"{name:<13} {arguments.sentences / statistics.median(own):8.2f} sentences per CPU second")
    tokens = sum(map(len, results["ours"])) / len(rows)
    longest, shortest = (pick(map(len, results["ours"])) for pick in (max, min))
    print(f"same tokens in {same} of {len(rows)} sentences, {shortest} to {longest} tokens, {tokens:.1f} on average")
    print(f"ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
