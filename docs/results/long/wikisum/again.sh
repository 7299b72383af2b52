#!/bin/sh
# In a folder that holds the files of this one.
set -e
python documents.py
scaling data prepare --model wikisum_cpu.yaml
scaling table wikisum_cpu.yaml --train --keep wikisum_cpu.md
