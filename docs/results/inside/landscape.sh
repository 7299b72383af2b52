#!/bin/sh
# The loss around 24 layers with and without residual connections: landscape.png, landscape.json.
#
#     sh docs/results/inside/landscape.sh
set -eu
here=$(dirname "$0")
runs=${1:-runs}
same="size.layers=24 size.width=16 size.heads=2 size.length=16 size.vocabulary=null data=synthetic data.symbols=8
      trainer.max_steps=200 train.batch=16 optimizer.lr=0.003 evaluate.points=2 log.wandb=disabled seed=0 runs=$runs"
identify() { sed -n 's/.*"run": "\([0-9a-f]*\)".*/\1/p' | head -1; }
with=$(scaling train decoder $same --json | identify)
without=$(scaling train decoder $same model.block.residual=NoResidual --json | identify)
scaling landscape "$with" "$without" --side 11 --windows 32 --to "$here/landscape.png" --json "runs=$runs" > "$here/landscape.json"
