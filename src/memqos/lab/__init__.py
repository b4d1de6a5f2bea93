"""Experiments: Memory QoS at work on a real kernel, in a virtual machine or in a scratch cgroup.

Every value under test comes from the planner. Only `memqos lab` and the tests import this package;
the agent's image has none of it.
"""
