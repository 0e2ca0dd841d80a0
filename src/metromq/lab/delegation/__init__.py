"""The delegation paper's experiments."""
