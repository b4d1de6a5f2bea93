"""Puts the project on a disk that a machine mounts read-only."""

import compileall
import py_compile
import shutil
from pathlib import Path

from tests.vm.harness.building import make_disk
from tests.vm.harness.image import PROJECT

CONTENT = (
    "pyproject.toml",
    "deploy/systemd",
    "src",
    "tests/builders.py",
    "tests/eventually.py",
    "tests/fakes",
    "tests/vm",
)


def payload(folder: Path, *more: Path) -> Path:
    """The project's sources and tests as they are now, in a disk below `folder`.

    More folders are there by their names.
    """
    tree, disk = folder / "payload", folder / "payload.ext4"
    for name in CONTENT:
        source, target = PROJECT / name, tree / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, target)
    for each in more:
        shutil.copytree(each, tree / each.name)
    # Compiling takes long in the guest. Where the host's Python is another one this is lost, and
    # all the same right.
    compileall.compile_dir(
        tree, quiet=1, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )
    make_disk(disk, tree, size="128M")
    shutil.rmtree(tree)
    return disk
