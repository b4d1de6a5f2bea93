"""Pods, a node and a release in; cgroup values with their reasons out. Pure: no I/O."""
