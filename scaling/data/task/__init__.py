"""Labelled data: examples of a task, read into one of seven kinds of answers."""
