"""Kubernetes objects as frozen values, and the rules the API server applies to them. Pure: no I/O."""
