"""The kernel's texts as values: cgroup files, /proc, pressure, reports of kills. Pure: no I/O."""
