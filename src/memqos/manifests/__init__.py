"""Manifests, dumps and snapshots: from bytes to plain data with positions, and to objects. Pure: no
I/O."""
