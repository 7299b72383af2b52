"""What a trained model can do: its writing, and the likelihoods of options, texts and hidden tokens."""
