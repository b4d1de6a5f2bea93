"""Manifests: from bytes to plain data with positions, and to the pods a document holds."""
