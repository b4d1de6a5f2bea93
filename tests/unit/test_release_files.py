"""What a release consists of: the SBOM, the index of both images, checksums; and its refusals."""

import io
import json
import subprocess
import sysconfig
import tarfile
from pathlib import Path

import pytest
from deploy import publish, release
from deploy.image import oci, sbom
from deploy.image.sbom import image_sbom
from deploy.steps import BuildFailed, project_version
from tests.commands import ROOT

STATUS = """\
Package: libc6
Status: install ok unpacked
Architecture: {0}
Version: 2.36-9+deb12u10
Description: GNU C Library
 Package: not-a-field

Package: python3.11
Status: install ok unpacked
Architecture: {0}
Version: 3.11.2-6
"""
FILES = {
    "var/lib/dpkg/status": STATUS,
    "usr/local/lib/python3.11/dist-packages/msgspec-0.22.0.dist-info/METADATA": (
        "Metadata-Version: 2.4\nName: msgspec\nVersion: 0.22.0\n\nName: not-a-field\n"
    ),
}


def write_image(folder: Path, architecture: str, version: str = "1.0") -> Path:
    layer, to = folder / "layer.tar", folder / f"{architecture}.tar"
    with tarfile.open(layer, "w") as tar:
        for name, text in FILES.items():
            content = text.format(architecture).encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    labels = {
        "org.opencontainers.image.title": "memqos",
        "org.opencontainers.image.version": version,
    }
    name = f"localhost/memqos:{version}"
    oci.write(oci.Image(name, architecture, ("x",), {}, labels), layer, to)
    return to


def test_an_sbom_has_the_packages_of_debian_and_python(tmp_path: Path) -> None:
    found = json.loads(image_sbom(write_image(tmp_path, "arm64")))
    assert {each["purl"] for each in found["components"]} == {
        "pkg:deb/debian/libc6@2.36-9%2Bdeb12u10?arch=arm64",
        "pkg:deb/debian/python3.11@3.11.2-6?arch=arm64",
        "pkg:pypi/msgspec@0.22.0",
    }
    assert found["metadata"]["component"]["version"] == "1.0"


def test_the_same_image_has_the_same_sbom(tmp_path: Path) -> None:
    image = write_image(tmp_path, "amd64")
    assert image_sbom(image) == image_sbom(image)


def test_an_sbom_of_no_image_says_what_to_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["sbom", str(tmp_path / "image.tar"), str(tmp_path / "sbom")])
    assert sbom.main() == 1
    assert "image.tar – make image" in capsys.readouterr().err


def test_an_index_has_the_images_of_both_architectures(tmp_path: Path) -> None:
    images = [write_image(tmp_path, each) for each in ("amd64", "arm64")]
    to = tmp_path / "index.tar"
    digest = oci.write_index(images, "registry.example.com/memqos:1.0", to)
    with tarfile.open(to) as tar:
        names = tar.getnames()
        (outer,) = json.load(tar.extractfile("index.json") or io.BytesIO())["manifests"]
        assert outer["digest"] == digest
        index = json.load(tar.extractfile(f"blobs/{digest.replace(':', '/')}") or io.BytesIO())
    assert [each["platform"]["architecture"] for each in index["manifests"]] == ["amd64", "arm64"]
    for each in index["manifests"]:
        assert f"blobs/{each['digest'].replace(':', '/')}" in names
    assert len(names) == len(set(names))


def test_publishing_names_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["publish", "registry.example.com"])
    assert publish.main() == 1
    assert "memqos-image-amd64.tar" in capsys.readouterr().err


@pytest.fixture
def publishing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree with the images of `make image`, and no program to run."""
    (tmp_path / "build").mkdir()
    for each in ("amd64", "arm64"):
        image = write_image(tmp_path, each, project_version())
        image.rename(tmp_path / "build" / f"memqos-image-{each}.tar")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["publish", "registry.example.com/platform/"])
    return tmp_path


def test_publishing_prints_the_commands_and_runs_nothing(
    publishing: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert publish.main() == 0
    shown = capsys.readouterr().out
    assert "of build/memqos-image-amd64.tar and build/memqos-image-arm64.tar" in shown
    assert "docker://registry.example.com/platform/memqos:" in shown
    assert "nothing was pushed" in shown


def test_a_program_that_publishing_lacks_is_named(
    publishing: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["publish", "registry.example.com", "--run"])
    assert publish.main() == 1
    assert "skopeo is missing – apt-get install skopeo" in capsys.readouterr().err


def test_images_of_a_release_are_published_before_others(
    publishing: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (publishing / "dist").mkdir()
    for each in ("amd64", "arm64"):
        released = release.released_image(project_version(), each)
        write_image(publishing, each, project_version()).rename(publishing / "dist" / released)
    assert publish.main() == 0
    assert f"of dist/{release.released_image(project_version(), 'amd64')} and dist/" in (
        capsys.readouterr().out
    )


def test_an_image_of_another_version_is_not_published_as_this_one(
    publishing: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_image(publishing, "arm64", "0.0.9").rename(publishing / "build/memqos-image-arm64.tar")
    assert publish.main() == 1
    assert "build/memqos-image-arm64.tar is of 0.0.9" in capsys.readouterr().err


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "CHANGELOG.md").write_text("# Changelog\n\n## 1.0.0 (2026-01-01)\n")
    _commit(folder)
    return folder


def _commit(folder: Path) -> None:
    for words in (
        ["init", "-q"],
        ["add", "-A"],
        ["-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "one"],
    ):
        subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True)


def test_a_clean_tree_with_a_dated_changelog_is_released(project: Path) -> None:
    release.check_state(project, "1.0.0")


def test_a_tree_with_changes_is_not_released(project: Path) -> None:
    (project / "new").touch()
    with pytest.raises(BuildFailed, match="the tree has changes"):
        release.check_state(project, "1.0.0")


def test_a_version_is_released_once(project: Path) -> None:
    subprocess.run(["git", "-C", str(project), "tag", "v1.0.0"], check=True)
    with pytest.raises(BuildFailed, match=r"v1\.0\.0 is tagged already"):
        release.check_state(project, "1.0.0")


def test_a_version_without_changelog_is_not_released(project: Path) -> None:
    with pytest.raises(BuildFailed, match=r"no dated section of 1\.0\.1"):
        release.check_state(project, "1.0.1")


def test_checksums_are_those_that_sha256sum_checks(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    release.write_checksums([tmp_path / "a"], tmp_path / "SHA256SUMS")
    done = subprocess.run(
        ["sha256sum", "--check", "SHA256SUMS"], cwd=tmp_path, capture_output=True, check=False
    )
    assert done.returncode == 0


def test_fragments_become_a_section_of_the_changelog(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "CHANGELOG.md"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes" / "why-jobs.added.md").write_text("`memqos why job/x` works.\n")
    towncrier = Path(sysconfig.get_path("scripts")) / "towncrier"
    done = subprocess.run(
        [str(towncrier), "build", "--yes", "--version", "9.9.9", "--date", "2026-01-01"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    changelog = (tmp_path / "CHANGELOG.md").read_text()
    section = changelog.partition("## 9.9.9 (2026-01-01)\n")[2].partition("\n## ")[0]
    assert "### Added" in section
    assert "- `memqos why job/x` works." in section
