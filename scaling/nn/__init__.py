"""The pieces, in slots: pure torch. No slot imports a sibling slot; siblings arrive as arguments."""
