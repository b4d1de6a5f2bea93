"""A real kernel: an image made of Debian's packages, and machines that QEMU runs.

`boot/` is what runs in the machine before the command it was started for.
"""
