"""Puts memqos on a disk that a machine mounts read-only at /memqos."""

import compileall
import py_compile
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import memqos
from memqos.lab.vm.building import make_disk
from memqos.lab.vm.image import BOOT

_PACKAGE: Final = Path(str(memqos.__file__)).parent


def make_payload(folder: Path, more: Mapping[str, Path] | None = None) -> Path:
    """This memqos and what starts in the machine, in a disk below `folder`.

    More files and folders by their places in /memqos.
    """
    tree, disk = folder / "payload", folder / "payload.ext4"
    content = {"src/memqos": _PACKAGE, "boot": BOOT, **(more or {})}
    for name, source in content.items():
        target = tree / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, target)
    for script in (tree / "boot").iterdir():
        script.chmod(0o755)  # whatever an installer made of it
    # Compiling takes long in the machine. Where the host's Python is another one this is lost, and
    # all the same right.
    compileall.compile_dir(
        tree, quiet=1, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )
    make_disk(disk, tree, size="128M")
    shutil.rmtree(tree)
    return disk
