"""Makes an initramfs: busybox, the kernel modules that find the disks, and an init."""

import lzma
import re
from collections.abc import Iterator
from pathlib import Path
from stat import S_IFDIR, S_IFREG
from typing import Final, NamedTuple

_FOLDERS: Final = ("bin", "dev", "modules", "proc", "root", "sys")


class _Entry(NamedTuple):
    name: str
    mode: int
    data: bytes = b""


class _Module(NamedTuple):
    name: str
    data: bytes


def make_initrd(
    *, busybox: Path, init: Path, kernel_modules: Path, wanted: tuple[str, ...]
) -> bytes:
    """A cpio archive; `kernel_modules` is searched for the wanted modules and what they need."""
    modules = list(_with_what_they_need(kernel_modules, wanted))
    order = "".join(f"{module.name}.ko\n" for module in modules)
    return _archive(
        [
            *(_Entry(folder, S_IFDIR | 0o755) for folder in _FOLDERS),
            _Entry("init", S_IFREG | 0o755, init.read_bytes()),
            _Entry("bin/busybox", S_IFREG | 0o755, busybox.read_bytes()),
            *(_Entry(f"modules/{each.name}.ko", S_IFREG | 0o644, each.data) for each in modules),
            _Entry("modules/order", S_IFREG | 0o644, order.encode()),
        ]
    )


def _with_what_they_need(folder: Path, wanted: tuple[str, ...]) -> Iterator[_Module]:
    """Modules in the order in which they load, without those that are part of the kernel.

    The package brings no modules.dep (depmod writes it on installation), but every module names
    those it needs.
    """
    files = {_name(file): file for file in folder.rglob("*.ko*")}
    builtin = {
        _name(Path(line))
        for listed in folder.rglob("modules.builtin")
        for line in listed.read_text().splitlines()
    }
    seen: set[str] = set()

    def visit(name: str) -> Iterator[_Module]:
        if name not in seen and name not in builtin:
            seen.add(name)
            file = files[name]
            module = _Module(file.name.partition(".ko")[0], _read_module(file))
            needed = re.search(rb"\0depends=([^\0]*)\0", module.data)
            for other in needed[1].decode().split(",") if needed else ():
                if other:
                    yield from visit(other.replace("-", "_"))
            yield module

    for name in wanted:
        yield from visit(name)


def _name(file: Path) -> str:
    return file.name.partition(".ko")[0].replace("-", "_")


def _read_module(file: Path) -> bytes:
    data = file.read_bytes()
    return lzma.decompress(data) if file.suffix == ".xz" else data


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
