"""Builds the machines' root disk, kernel and initramfs, once for each recipe."""

import hashlib
import importlib.metadata
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from memqos.lab.vm import initrd, tools
from memqos.lab.vm.building import building_folder, locked, make_disk, remove_tree, run_tool
from memqos.lab.vm.topology import DEBIAN, Suite

HERE: Final = Path(__file__).parent
BOOT: Final = HERE / "boot"
BOOT_INIT: Final = BOOT / "init"
UNITS: Final = (*sorted(BOOT.glob("*.service")), *sorted(BOOT.glob("*.target")))
PROJECT: Final = HERE.parents[3]
"""The source tree, where memqos runs from one."""

GUEST_PACKAGES: Final = (
    "usr-is-merged",
    "mount",
    "systemd-sysv",
    "dbus",
    "python3",
    "containerd",
    "runc",
    "crun",
    "busybox-static",
    "openssl",
)
KERNEL: Final = "linux-image-cloud-amd64"
KERNEL_PACKAGE: Final = "linux-(image|binary|modules|base)-[0-9][^ ]*"
"""Since 7.2 kernel, modules and the list of what is built in have packages of their own."""
KERNEL_MODULES: Final = (
    "virtio_pci",
    "virtio_blk",
    "virtio_console",
    "virtio_rng",
    "overlay",
    "loop",
)
GUEST_PYTHON: Final[dict[Suite, str]] = {"bookworm": "3.11", "trixie": "3.13", "forky": "3.14"}
PYTEST: Final = ("iniconfig", "packaging", "pluggy", "pygments", "pytest")
"""What memqos's own tests need on top."""

UNWANTED_UNITS: Final = (
    "systemd-journal-flush.service",
    "systemd-machine-id-commit.service",
    "systemd-random-seed.service",
    "systemd-remount-fs.service",
    "systemd-sysusers.service",
    "systemd-tmpfiles-setup.service",
    "systemd-tmpfiles-setup-dev.service",
    "systemd-tmpfiles-setup-dev-early.service",
    "systemd-firstboot.service",
    "systemd-update-utmp.service",
)
UNWANTED_FILES: Final = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*")
KEPT_IMAGES: Final = 6
BUILDING: Final = "building-"


class MachineImage(NamedTuple):
    """What a machine boots from."""

    kernel: Path
    initrd: Path
    root: Path


def image_cache() -> Path:
    """Where images are kept, outside the work tree."""
    if chosen := os.environ.get("MEMQOS_VM_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "memqos-vm"


def obstacle_to_building(suite: Suite) -> str | None:
    """Why no image can be built into the cache and what to do about it, if so."""
    if os.geteuid() != 0:
        debian = next(word for word, each in DEBIAN.items() if each == suite)
        return (
            "the image of the virtual machines is not built yet, and only root can unpack a "
            "system with its owners and devices – as root run, once: "
            f"MEMQOS_VM_CACHE={image_cache()} memqos lab run throttling --debian {debian}"
        )
    if not tools.apt_sources():
        return (
            "the image of the virtual machines is made of Debian's packages, and apt has no source "
            f"of Debian 12 – add one of {tools.HOST_SUITE}"
        )
    if tools.pip_command() is None:
        return "the image of the virtual machines needs pip – apt-get install python3-pip"
    return None


def built_image(suite: Suite = "bookworm") -> MachineImage | None:
    """The image of today's recipe, if there is one."""
    image = _image_in(_folder(suite))
    return image if image.root.exists() else None


def machine_image(suite: Suite = "bookworm") -> MachineImage:
    """The image of today's recipe; the first process builds it, the others wait."""
    folder = _folder(suite)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.parent / "lock"):
        if (ready := built_image(suite)) is not None:
            return ready
        _remove_leftovers(folder.parent)
        with building_folder(BUILDING, folder.parent) as building:
            _build(building, suite).rename(folder)
    return _image_in(folder)


def guest_requirements() -> str:
    """What pip installs into the image: the project's pins, or what memqos runs with here."""
    if not (PROJECT / "requirements-dev.txt").exists():
        return "".join(_installed_pins())
    needed = {name for name, _ in _pins("requirements.txt")} | set(PYTEST)
    return "".join(pin for name, pin in _pins("requirements-dev.txt") if name in needed)


def _installed_pins() -> Iterator[str]:
    for requirement in importlib.metadata.requires("memqos") or ():
        if ";" not in requirement:  # those with a marker are of an extra
            name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
            yield f"{name}=={importlib.metadata.version(name)}\n"


def _pins(file: str) -> Iterator[tuple[str, str]]:
    text = (PROJECT / file).read_text()
    for found in re.finditer(r"^([\w.-]+)==.*\\\n(?: +--hash=.*\n)+", text, re.MULTILINE):
        yield found[1], found[0]


def _folder(suite: Suite) -> Path:
    recipe = hashlib.sha256(f"{suite}\n{guest_requirements()}".encode())
    for file in (Path(__file__), Path(initrd.__file__), BOOT_INIT, *UNITS):
        recipe.update(file.read_bytes())
    return image_cache() / recipe.hexdigest()[:16]


def _image_in(folder: Path) -> MachineImage:
    return MachineImage(folder / "vmlinuz", folder / "initrd", folder / "root.ext4")


def _remove_leftovers(folder: Path) -> None:
    """Builds that were killed, and the images of old recipes."""
    folders = [path for path in folder.iterdir() if path.is_dir()]
    killed = {path for path in folders if path.name.startswith(BUILDING)}
    old = sorted(set(folders) - killed, key=lambda path: path.stat().st_mtime)
    for path in [*killed, *old[: 1 - KEPT_IMAGES]]:
        remove_tree(path)


def _build(folder: Path, suite: Suite) -> Path:
    """Build in a folder of its own; the subfolder to keep."""
    root, kernel, kept = folder / "root", folder / "kernel", folder / "image"
    kept.mkdir()
    image = _image_in(kept)
    _bootstrap(root, suite, kernel_to=folder)
    for package in folder.glob("*.deb"):
        run_tool("dpkg-deb", "--extract", str(package), str(kernel))
    [vmlinuz] = [*kernel.glob("boot/vmlinuz-*"), *kernel.glob("usr/lib/modules/*/vmlinuz")]
    shutil.copy(vmlinuz, image.kernel)
    image.initrd.write_bytes(
        initrd.make_initrd(
            busybox=root / "bin/busybox",
            init=BOOT_INIT,
            kernel_modules=kernel,
            wanted=KERNEL_MODULES,
        )
    )
    _configure(root)
    _install_python_packages(root, folder / "requirements.txt", GUEST_PYTHON[suite])
    make_disk(image.root, root, size="2G")
    return kept


def _bootstrap(root: Path, suite: Suite, *, kernel_to: Path) -> None:
    # The kernel is downloaded by the same apt, from the same sources, but not installed: that
    # would bring in the tools that make an initramfs.
    download_kernel = f"""
        export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG"
        cd {shlex.quote(str(kernel_to))}
        apt-get -qq download $(apt-cache depends --recurse --important {KERNEL} |
            grep -oE '{KERNEL_PACKAGE}' | sort -u)
    """
    run_tool(
        # mmdebstrap mounts the host's /dev and more in the root, and starts apt and dpkg. In
        # namespaces of its own mounts and processes end with it, however it ends, and are not there
        # when the root is removed.
        *("unshare", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child"),
        # A killed one leaves its keyring there.
        *("env", f"TMPDIR={kernel_to}"),
        *("mmdebstrap", "--quiet", "--mode=root", "--variant=essential", "--format=directory"),
        *_merge_usr(suite),
        '--aptopt=Acquire::Languages "none"',
        '--aptopt=APT::Install-Recommends "false"',
        # A suite that is still being tested may not have been signed again in time.
        '--aptopt=Acquire::Check-Valid-Until "false"',
        "--dpkgopt=force-unsafe-io",
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in UNWANTED_FILES),
        f"--include={','.join(GUEST_PACKAGES)}",
        f"--customize-hook={download_kernel}",
        *(suite, str(root)),
        *(str(_sources_of(suite, source, kernel_to)) for source in tools.apt_sources()),
    )


def _merge_usr(suite: Suite) -> Iterator[str]:
    """Since Debian 13 the packages themselves do it."""
    if suite == "bookworm":
        yield "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr"


def _sources_of(suite: Suite, source: Path, folder: Path) -> Path:
    """The machine's own package source, for another suite."""
    copy = folder / f"{suite}-{source.name}"
    copy.write_text(source.read_text().replace(tools.HOST_SUITE, suite))
    return copy


def _configure(root: Path) -> None:
    (root / "memqos").mkdir()
    # Container runtimes want both.
    (root / "etc/hosts").write_text("127.0.0.1 localhost guest\n")
    (root / "etc/resolv.conf").write_text("")
    (root / "etc/hostname").write_text("guest\n")
    units = root / "etc/systemd/system"
    for unit in UNITS:
        shutil.copy(unit, units)
    for name in UNWANTED_UNITS:
        (units / name).symlink_to("/dev/null")


def _install_python_packages(root: Path, list_at: Path, python: str) -> None:
    pins = guest_requirements()
    list_at.write_text(pins)
    pip = tools.pip_command()
    assert pip is not None
    packages = f"usr/local/lib/python{python}/dist-packages"
    run_tool(
        *(*pip, "--disable-pip-version-check", "install", "--no-compile"),
        *(["--require-hashes"] if "--hash=" in pins else []),
        *("--only-binary=:all:", "--implementation=cp", f"--python-version={python}"),
        *("--platform=manylinux2014_x86_64", "--platform=manylinux_2_28_x86_64"),
        *("--target", str(root / packages), "--requirement", str(list_at)),
    )
    run_tool("chroot", str(root), "python3", "-m", "compileall", "-q", f"/{packages}")
