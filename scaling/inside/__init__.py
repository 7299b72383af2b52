"""Looking inside a trained model: what its heads look at, and what happens without them."""
