"""What a pretrained model can do without finetuning: likelihoods of options, texts and hidden tokens."""
