"""The abilities of a trained model: its writing, and the likelihoods of options, texts and hidden tokens."""
