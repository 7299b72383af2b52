"""Studies: one YAML becomes a grid of runs, workers train what is not done, and the finished runs become points."""
