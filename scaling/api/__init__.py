"""The Python API: the verbs of the command line as functions with typed results. `import scaling` gives them all.

The command line calls these functions and prints what they return.
"""
