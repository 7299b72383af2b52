#!/bin/sh
# sh again.sh MULTI30K, in this folder of a clone: hours on two cores. MULTI30K has train, val and
# test_2016_flickr, each as .de.gz and .en.gz. Killed in any way, the same command goes on.
set -e
export OMP_NUM_THREADS=1
cp "$1"/*.gz .
for table in multi30k table3 docstrings; do
    scaling table "$table.yaml" --extend ../../../examples/machine_corpora/machine.py --train --keep "$table.md"
done
scaling study pairs/pairs.yaml
scaling report pairs --keep .
python pairs.py runs pairs/points.csv

# BLEU of the other split, by length and beside one another, one run a model.
sed -n 's/^\([^,]*\),\([^,]*\),finished,0,.*/\1=\2/p' multi30k/points.csv | while IFS='=' read -r row run; do
    scaling predict "$run" test_2016_flickr.de.gz --to "$row.jsonl"
done
python lengths.py test_2016_flickr.de.gz test_2016_flickr.en.gz ./*.jsonl
