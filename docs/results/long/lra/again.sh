#!/bin/sh
# In a folder that holds the files of this one: `sh again.sh REVIEWS`, where REVIEWS holds the files of movie_reviews (inputs.py).
set -e
python inputs.py "$1"
scaling data prepare --model reviews_pretrained.yaml
for task in lists reviews; do
  scaling table "$task.yaml" --train --keep "$task.md"
  scaling table "${task}_pretrained.yaml" --train --downstream all --keep "${task}_pretrained.md"
done
python compare.py
