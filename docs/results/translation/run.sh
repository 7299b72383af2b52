#!/bin/sh
# Multi30k, German to English, by three models of about one size at equal training FLOPs.
# sh docs/results/translation/run.sh FOLDER [RUNS]: FOLDER has train, val and test_2016_flickr, each as .de.gz and .en.gz.
set -e
data=${1:?the folder of Multi30k}
runs=${2:-runs}
files="{train: [$data/train.de.gz, $data/train.en.gz], validation: [$data/val.de.gz, $data/val.en.gz], \
test: [$data/test_2016_flickr.de.gz, $data/test_2016_flickr.en.gz]}"

train() { # MODEL STEPS SIZE
    scaling train "$1" data=task/translate_multi30k_de_en data.layout=parallel "data.columns=[de, en]" \
        "data.files=$files" data.tokenizer.vocabulary=4000 objective=Answer "size=$3" \
        "train.batch={tokens: 1024}" "train.steps=$2" train.smoothing=0.1 \
        "optimizer={kind: Adam, lr: 3e-3, betas: [0.9, 0.98], eps: 1e-9}" \
        "schedule={kind: InverseSquareRoot, warmup: 100}" evaluate.points=1 evaluate.windows=256 \
        log.wandb=disabled "log.name=$1" "runs=$runs"
}

train vaswani 600 "{width: 128, layers: 2, heads: 4, hidden: 512, length: 64, vocabulary: null}"
train gru_attention 689 "{width: 128, layers: 2, heads: 1, length: 64, vocabulary: null}"
train convs2s 613 "{width: 128, layers: 4, heads: 1, length: 64, vocabulary: null}"

# Then, with the ids that are printed: scaling evaluate GRU --split test --paired-bootstrap TRANSFORMER
