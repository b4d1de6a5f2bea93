"""Pods, a node and a release in; the cgroup values they should have, with reasons, out. Pure: no I/O."""
