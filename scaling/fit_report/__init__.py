"""Fit report: the document of a fit, its checklist, and its tables for terminal, Markdown and LaTeX."""
