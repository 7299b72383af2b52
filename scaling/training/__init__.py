"""Training: modules for Lightning, optimizers, schedules, parametrizations, evaluation, checkpoints, logging."""
