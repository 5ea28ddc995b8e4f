"""Readers and writers of photograph files."""
