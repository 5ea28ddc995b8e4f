"""The networks and their weight files."""
