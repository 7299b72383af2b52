#!/bin/sh
# Pretrains, then trains the tables, in the folder that holds english/, tasks/ and these files.
set -e
scaling data prepare --model pretrain_decoder.yaml
cp "$(ls -d data/*/tokenizer.json | head -n 1)" tokenizer.json
for family in decoder encoder encoder_decoder; do
  scaling train "pretrain_$family.yaml"
  scaling table "small_glue_$family.yaml" --train seeds=3 --keep "small_glue_$family.md"
done
scaling table tuning.yaml --train --keep tuning.md
python unlabelled.py
scaling train pretrain_student.yaml
scaling train teacher.yaml
scaling table distillation.yaml --train --keep distillation.md
