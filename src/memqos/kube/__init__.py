"""Kubernetes objects as frozen values, and what the API server does to them. Pure: no I/O."""
