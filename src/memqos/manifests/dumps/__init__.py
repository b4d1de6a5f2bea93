"""Dumps of whole clusters: read only as far as memory depends on it."""
