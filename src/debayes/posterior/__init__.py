"""The posterior distribution of every pixel, and what networks are trained to maximise."""
