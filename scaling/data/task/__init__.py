"""Labelled data: examples of a task, read into one of seven kinds of answers."""

from scaling.data.task.example import Answer, Example
from scaling.data.task.source import Examples, Goal
from scaling.data.task.task import Task

__all__ = ["Answer", "Example", "Examples", "Goal", "Task"]
