#!/bin/sh
# Makes the study long_attention on Python's text, the narrow models first, and its tables: hours on two cores.
# Killed in any way, the same command goes on. The report and the points are kept next to this file.
set -e
export OMP_NUM_THREADS=1
here=$(dirname "$0")
scaling data prepare python data.tokenizer.vocabulary=500
scaling study long_attention --at text_narrow log.wandb=disabled
scaling study long_attention --at text log.wandb=disabled
scaling report long_attention-text --keep "$here"
python "$here/attention.py" "$here/long_attention-text/points.csv" --time > "$here/attention.md"
