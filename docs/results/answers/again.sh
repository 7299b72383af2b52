#!/bin/sh
# Makes this folder again, in a checkout whose root holds the corpus as english.jsonl.gz (README.md names its texts).
# About half an hour on one idle core.
set -e
here=docs/results/answers
runs=${1:-runs/answers}
python -m scaling data prepare files data.corpus.files=english.jsonl.gz \
  'data.tokenizer={kind: ByteBPE, vocabulary: 508, sample: 16M}' data.validation=0.02 runs="$runs"
python -m scaling study "$here/activations.yaml" --workers 1 runs="$runs"
python -m scaling study "$here/activations.yaml" --at swiglu --workers 1 runs="$runs"
python -m scaling study "$here/cooldowns.yaml" --workers 1 runs="$runs"
python -m scaling report activations runs="$runs" --keep "$here"
python -m scaling report activations-swiglu runs="$runs" --keep "$here"
python -m scaling report cooldowns runs="$runs" --keep "$here"
python -m scaling compare activations activations-swiglu runs="$runs"
