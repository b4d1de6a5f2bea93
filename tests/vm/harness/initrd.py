"""Makes an initramfs: busybox, the kernel modules that find the disks, and an init."""

import re
from collections.abc import Iterator
from pathlib import Path
from stat import S_IFDIR, S_IFREG
from typing import NamedTuple

FOLDERS = ("bin", "dev", "modules", "proc", "root", "sys")


class _Entry(NamedTuple):
    name: str
    mode: int
    data: bytes = b""


def initrd(*, busybox: Path, init: Path, kernel_modules: Path, wanted: tuple[str, ...]) -> bytes:
    """A cpio archive; `kernel_modules` is searched for the wanted modules and what they need."""
    modules = list(_with_what_they_need(kernel_modules, wanted))
    order = "".join(f"{module.name}\n" for module in modules)
    return _archive(
        [
            *(_Entry(folder, S_IFDIR | 0o755) for folder in FOLDERS),
            _Entry("init", S_IFREG | 0o755, init.read_bytes()),
            _Entry("bin/busybox", S_IFREG | 0o755, busybox.read_bytes()),
            *(
                _Entry(f"modules/{file.name}", S_IFREG | 0o644, file.read_bytes())
                for file in modules
            ),
            _Entry("modules/order", S_IFREG | 0o644, order.encode()),
        ]
    )


def _with_what_they_need(folder: Path, wanted: tuple[str, ...]) -> Iterator[Path]:
    """Modules in the order in which they load.

    The package brings no modules.dep (depmod writes it on installation), but every module names
    those it needs.
    """
    files = {file.stem.replace("-", "_"): file for file in folder.rglob("*.ko")}
    seen: set[str] = set()

    def visit(name: str) -> Iterator[Path]:
        if name not in seen:
            seen.add(name)
            needed = re.search(rb"\0depends=([^\0]*)\0", files[name].read_bytes())
            for other in needed[1].decode().split(",") if needed else ():
                if other:
                    yield from visit(other.replace("-", "_"))
            yield files[name]

    for name in wanted:
        yield from visit(name)


def _archive(entries: list[_Entry]) -> bytes:
    """The "newc" format of the kernel's documentation, driver-api/early-userspace/buffer-format."""
    archive = bytearray()
    for inode, entry in enumerate([*entries, _Entry("TRAILER!!!", 0)], start=1):
        name = entry.name.encode() + b"\0"
        fields = (inode, entry.mode, 0, 0, 1, 0, len(entry.data), 0, 0, 0, 0, len(name), 0)
        archive += b"070701" + b"".join(b"%08X" % field for field in fields)
        for part in (name, entry.data):
            archive += part
            archive += bytes(-len(archive) % 4)
    return bytes(archive)
