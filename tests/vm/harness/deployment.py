"""What a cluster would be given: the image, and the overlays as they are rendered."""

import hashlib
import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.fakes.kubelet import self_signed
from tests.overlays import FILE, rendered

from memqos.lab.vm import tools
from memqos.lab.vm.building import locked, run_tool
from memqos.lab.vm.image import PROJECT, image_cache, obstacle_to_building

KUSTOMIZE = PROJECT / "deploy" / "kustomize"
INGREDIENTS = (
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "requirements.txt",
    "src",
    "deploy/image",
    "deploy/steps.py",
)
KEPT_IMAGES = 3


def obstacle() -> str | None:
    """Why the image cannot be had here and what to do about it, if so."""
    if built().exists():
        return None
    if importlib.util.find_spec("setuptools") is None:
        return "memqos's image needs setuptools: run the tests with make test"
    return obstacle_to_building("bookworm")


def deployment(folder: Path) -> Path:
    """A folder with it all, below this one."""
    made = folder / "deployment"
    made.mkdir()
    shutil.copy(_image(), made / "image.tar")
    for name, objects in overlays(folder / "kustomize"):
        (made / f"{name}.json").write_text(json.dumps(objects))
    self_signed(made, "server", "IP:127.0.0.1")
    return made


def overlays(copy: Path) -> Iterator[tuple[str, list[dict[str, object]]]]:
    """Every overlay, and `owners`: enforce with the component that its comment names.

    The kubelet of the machine is older than 1.33, so agents are given its configuration file.
    """
    shutil.copytree(KUSTOMIZE, copy)
    owners, enforce = copy / "overlays" / "owners", copy / "overlays" / "enforce"
    shutil.copytree(enforce, owners)
    text = (enforce / FILE).read_text()
    commented = "# components:\n# - ../../components/owners\n"
    assert commented in text
    (owners / FILE).write_text(text.replace(commented, commented.replace("# ", "")))
    for overlay in sorted((copy / "overlays").iterdir()):
        yield overlay.name, rendered(_on_old_kubelets(overlay))


def _on_old_kubelets(overlay: Path) -> Path:
    """An overlay beside this one that adds the kubelet's file to an agent."""
    if overlay.name == "webhook":
        return overlay
    made = overlay.parent.parent / f"{overlay.name}-on-old-kubelets"
    made.mkdir()
    (made / FILE).write_text(
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"
        f"resources: [../overlays/{overlay.name}]\ncomponents: [../components/kubelet-file]\n"
    )
    return made


def _image() -> Path:
    """The image of today's tree; whoever comes first builds it, the others wait."""
    to = built()
    to.parent.mkdir(parents=True, exist_ok=True)
    with locked(to.parent / "deployment.lock"):
        if not to.exists():
            _remove_old(to.parent)
            _build(to)
    return to


def _build(to: Path) -> None:
    pip = tools.pip_command()
    assert pip is not None
    python = pip[0]
    # As make image does: by the Python that has pip, with the setuptools of the one that tests.
    command = ("-m", "deploy.image.build", "--setuptools-of", sys.executable, str(to))
    run_tool("env", "--chdir", str(PROJECT), python, *command)


def built() -> Path:
    """Where the image of today's tree is, or will be."""
    content = hashlib.sha256()
    for file in _ingredients():
        content.update(f"{file.relative_to(PROJECT)}\0".encode() + file.read_bytes())
    return image_cache() / f"memqos-{content.hexdigest()[:16]}.tar"


def _ingredients() -> Iterator[Path]:
    for name in INGREDIENTS:
        path = PROJECT / name
        found = sorted(path.rglob("*")) if path.is_dir() else [path]
        yield from (each for each in found if each.is_file() and each.suffix != ".pyc")


def _remove_old(folder: Path) -> None:
    old = sorted(folder.glob("memqos-*.tar"), key=os.path.getmtime)
    for path in old[: 1 - KEPT_IMAGES]:
        path.unlink()
