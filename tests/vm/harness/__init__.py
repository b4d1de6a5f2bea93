"""A real kernel for the tests: an image made of Debian packages, machines emulated by QEMU.

The host side runs where the tests are started. What runs in the machine before the tests does is
in `boot/`; the tests themselves are in `tests/vm/guest`, which the host never imports.
"""
