#!/bin/sh
# Makes this folder again, from the root of the repository: an adaptive study of the quickstart's candidates, then the
# quickstart's whole grid for comparison, which uses the runs that are there. About ten minutes of one worker.
set -e
here=docs/results/adaptive
runs=${1:-runs/adaptive}
mkdir -p "$runs"
sed '/^minutes:/,$d' configs/study/quickstart.yaml > "$runs/quickstart.yaml"  # the whole grid, however slow the machine
python -m scaling study "$runs/quickstart.yaml" --adaptive 'E ± 0.04' --workers 1 runs="$runs"
python -m scaling study "$runs/quickstart.yaml" --workers 1 runs="$runs"
python -m scaling report quickstart-adaptive-E-0.04 runs="$runs" --keep "$here"
python -m scaling report quickstart runs="$runs" --keep "$here"
