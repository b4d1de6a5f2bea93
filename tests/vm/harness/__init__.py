"""Tests on a real kernel: which machines modules want, what is put into them, what came of it.

The machines are those of `memqos.lab.vm`. The tests themselves are in `tests/vm/guest`, which the
host never imports.
"""
