"""Rules of other packages: loaded when they are named, and never otherwise."""

import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.commands import ROOT, memqos

EXAMPLE = ROOT / "examples" / "own-rules"
PACKAGE = "acme-memory-rules"
DOCTOR = [
    "doctor",
    "--cgroup-root",
    "examples/tree/cgroup",
    "--pods",
    "examples/tree/pods.yaml",
    "--kubelet",
    "examples/tree/kubelet.yaml",
    "--release",
    "1.38",
    "--seconds",
    "0.1",
]
AUDIT = ["audit", "examples/cluster/dump.json"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the example is installed into: a wheel of modules alone is unpacked there."""
    folder = tmp_path_factory.mktemp("site")
    source = tmp_path_factory.mktemp("source")  # setuptools builds within its project
    for file in EXAMPLE.glob("*.*"):
        (source / file.name).write_bytes(file.read_bytes())
    build = "from setuptools.build_meta import build_wheel; build_wheel('.')"
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True)
    (wheel,) = source.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture
def example(installed: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(installed))
    yield
    sys.modules.pop("acme_memory_rules", None)


def install(
    name: str, points: str, code: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package as a wheel leaves it behind."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(points)
    (folder / f"{name}_module.py").write_text(code)
    monkeypatch.syspath_prepend(str(folder))


@pytest.mark.usefixtures("example")
def test_doctor_judges_by_the_rules_of_a_named_package() -> None:
    before, done = memqos(*DOCTOR), memqos(*DOCTOR, "--rules", PACKAGE)
    assert "acme/" not in before.out
    assert "warning  acme/many-pods  the node\n" in done.out
    assert "· 2 pods, at most 2" in done.out
    assert done.code == 2


@pytest.mark.usefixtures("example")
@pytest.mark.parametrize("output", ["table", "json", "yaml", "html"])
def test_every_output_of_audit_has_findings_of_other_packages(output: str) -> None:
    done = memqos(*AUDIT, "--rules", PACKAGE, "-o", output)
    assert done.code == 0, done.err
    assert "acme/large-namespace" in done.out
    assert "a namespace requests more memory than our teams may" in done.out


@pytest.mark.usefixtures("example")
def test_of_one_severity_findings_of_other_packages_come_last() -> None:
    found = memqos(*AUDIT, "--rules", PACKAGE, "-o", "json").data["findings"]
    warnings = [each["rule"] for each in found if each["severity"] == "warning"]
    own = [rule for rule in warnings if rule.startswith("acme/")]
    assert own
    assert warnings[-len(own) :] == own


@pytest.mark.usefixtures("example")
def test_options_of_audit_select_rules_of_other_packages_too() -> None:
    def rules(*options: str) -> set[str]:
        found = memqos(*AUDIT, "--rules", PACKAGE, *options, "-o", "json").data["findings"]
        return {each["rule"] for each in found}

    assert rules("--rule", "acme") == rules("--rule", "acme/large-namespace")
    assert rules("--rule", "acme") == {"acme/large-namespace"}
    assert "acme/large-namespace" not in rules("--skip", "acme")
    assert "acme/large-namespace" not in rules("--rule", "pod")
    assert memqos(*AUDIT, "--rule", "acme").code == 64


@pytest.mark.usefixtures("example")
def test_an_error_of_another_packages_rule_refuses_a_pod() -> None:
    done = memqos("admit", "examples/one.yaml", "--rules", PACKAGE, "-o", "json")
    assert done.code == 2, done.err
    (pod,) = done.data["pods"]
    assert pod["refusedBy"] == f"the rules of {PACKAGE}"
    assert [(each["rule"], each["mode"]) for each in pod["breaches"]] == [("acme/owner", "refuse")]
    manifest = (ROOT / "examples" / "one.yaml").read_text()
    with_owner = manifest.replace(
        "metadata:\n", "metadata:\n  labels: {acme.example/owner: me}\n", 1
    )
    assert memqos("admit", "-", "--rules", PACKAGE, stdin=with_owner).code == 0


@pytest.mark.usefixtures("example")
def test_the_package_is_not_imported_unless_it_is_named() -> None:
    memqos(*DOCTOR)
    memqos(*AUDIT)
    assert "acme_memory_rules" not in sys.modules
    memqos(*AUDIT, "--rules", PACKAGE)
    assert "acme_memory_rules" in sys.modules


@pytest.mark.parametrize("command", ["agent", "apply", "rollback", "webhook", "plan"])
def test_commands_that_write_or_serve_take_no_rules(command: str) -> None:
    done = memqos(command, "--rules", PACKAGE)
    assert done.code == 64
    assert "No such option" in done.err


HEAD = "from memqos.findings.finding import Finding\n"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("def judge(audit):\n    return 1 / 0\n", "failed: ZeroDivisionError: division by zero"),
        ("def judge(audit):\n    return ['text']\n", "gave a str, not a Finding"),
        (
            "def judge(audit):\n    return [Finding('a/b', 'bad', '', '', (), '')]\n",
            "gave a wrong Finding: Invalid enum value 'bad'",
        ),
        (
            "def judge(audit):\n    return [Finding('a/b', 'info', '', '', 'text', '')]\n",
            "gave a wrong Finding: Expected `array`, got `str`",
        ),
        (
            "def judge(audit):\n    return [Finding('ab', 'info', '', '', (), '')]\n",
            "gave the id 'ab'",
        ),
        (
            "def judge(audit):\n    return [Finding('pod/b', 'info', '', '', (), '')]\n",
            "gave the id pod/b, and the group pod is memqos's own",
        ),
        ("judge = 3\n", "is a int, not a function"),
        ("raise RuntimeError('no')\n", "cannot be imported: RuntimeError: no"),
        ("", "cannot be imported: AttributeError"),
    ],
)
def test_a_broken_rule_is_an_error_that_names_it(
    body: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"broken{abs(hash(body)):x}"
    points = f"[memqos.rules]\ncluster = {name}_module:judge\n"
    install(name, points, HEAD + body, tmp_path, monkeypatch)
    done = memqos(*AUDIT, "--rules", name)
    assert done.code == 1
    assert not done.out
    assert message in done.err
    assert f"{name}_module:judge" in done.err
    assert f"of {name}" in done.err


def test_a_package_without_rules_for_the_command_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = "[memqos.rules]\npod = onlypods_module:judge\n"
    install("onlypods", points, "", tmp_path, monkeypatch)
    for name, message in (
        ("onlypods", "onlypods has no rule for a cluster, only for pod"),
        ("msgspec", "msgspec has no rule for a cluster, none at all"),
        ("no-such-package", "the package 'no-such-package' is not installed"),
        ("", "the package '' is not installed"),
    ):
        done = memqos(*AUDIT, "--rules", name)
        assert (done.code, done.out) == (1, "")
        assert message in done.err


def test_the_library_takes_functions() -> None:
    import memqos as library
    from memqos.audit.cluster_audit import Audit
    from memqos.findings.finding import Finding

    def check(audit: Audit) -> list[Finding]:
        return [Finding("acme/size", "info", f"{audit.pods} pods", "cluster", (), "none")]

    report = library.audit(library.load("examples/one.yaml"), own_rules=[check])
    assert ("acme/size", "1 pods") in [(each.rule, each.what) for each in report.findings]
