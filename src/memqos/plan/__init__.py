"""Pods, a node and a release in; cgroup values with their reasons out. Pure: no I/O.

`memqos.plan(…)` is the function of that name in `memqos.library`.
"""

import sys

from memqos import CallablePackage

sys.modules[__name__].__class__ = CallablePackage
