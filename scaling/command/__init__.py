"""The verbs of the command line: one module each, with `add_arguments(parser)` and `run(arguments)`."""
