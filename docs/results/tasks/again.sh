#!/bin/sh
# Makes the text, then trains the tables, in the folder that holds english/, tasks/ and these files. Killed in any way, the
# same command goes on.
set -e
export OMP_NUM_THREADS=1
python materials.py
scaling data prepare tokenizer.yaml
cp "$(ls -d data/*/tokenizer.json | head -n 1)" tokenizer.json
scaling data prepare text_and_facts.yaml
for limit in 280k 2.8M null; do scaling data prepare text.yaml data.corpus.limit=$limit; done
scaling table narang.yaml --train --downstream TREC,SST-2,Facts,Pairs --keep narang.md size.vocabulary=2048
scaling table raffel.yaml --train --downstream TREC,SST-2,Facts,Pairs --keep raffel.md
scaling table roberta.yaml --train --downstream SST-2,TREC,CoNLL-2003 --keep roberta.md
for family in decoder encoder encoder_decoder; do
    scaling study "law_$family.yaml"
    scaling report "law_$family" --keep .
done
