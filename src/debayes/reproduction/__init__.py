"""Experiments that reproduce the paper's tables and figures, and the demonstration."""
