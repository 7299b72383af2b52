"""Sources of known entropy: a language, and a translation into a second one; and tasks whose best score is known."""
