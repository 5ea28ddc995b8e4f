"""Scores: metrics, the protocol, test sets, other methods."""
