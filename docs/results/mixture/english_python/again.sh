#!/bin/sh
# Makes this folder's points again, in a checkout whose root holds the corpus as english.jsonl.gz (README.md names its texts).
set -e
here=docs/results/mixture/english_python
runs=${1:-runs/english_python}
python -m scaling data prepare --model "$here/model.yaml" runs="$runs"
python -m scaling study "$here/swarm.yaml" --workers 1 runs="$runs"
python -m scaling mixture swarm runs="$runs"
