"""The Helm chart makes what the overlays of kustomize make, by the real Helm."""

import json
import platform
import shutil
import subprocess
import sysconfig
import tomllib
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml
from tests.commands import ROOT
from tests.overlays import FILE, rendered

from memqos.agent.configuration.sources import load_configuration
from memqos.findings.policy import policy_from_document
from memqos.manifests.documents import Document, read_documents

CHART: Final = ROOT / "deploy" / "helm" / "memqos"
KUSTOMIZE: Final = ROOT / "deploy" / "kustomize"
HELM: Final = Path(sysconfig.get_path("scripts")) / "helm"
PLATFORMS: Final = sorted(path.stem for path in (CHART / "platforms").iterdir())
RELEASES: Final = ("1.28", "1.36")
"""The oldest and the newest whose OpenAPI schemas are here."""
OF_HELM: Final = ("app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "helm.sh/chart")

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="Helm's binary comes from PyPI for x86-64 only"
)

Object = dict[str, Any]

VARIANTS: Final[dict[str, tuple[str, tuple[str, ...], Object]]] = {
    "observe": ("observe", (), {}),
    "enforce": ("enforce", (), {"mode": "enforce"}),
    "enforce-systemd": (
        "enforce-systemd",
        (),
        {"mode": "enforce", "cgroups": {"writable": "kubepods"}},
    ),
    "enforce-cgroupfs": (
        "enforce-cgroupfs",
        (),
        {"mode": "enforce", "cgroups": {"writable": "kubepods", "driver": "cgroupfs"}},
    ),
    "all components": (
        "enforce",
        ("owners", "nri", "pod-monitor", "kubelet-file", "read-endpoint"),
        {
            "mode": "enforce",
            "owners": {"enabled": True},
            "nri": {"enabled": True},
            "podMonitor": {"enabled": True},
            "kubelet": {"configFile": "/var/lib/kubelet/config.yaml"},
            "readEndpoint": {"enabled": True},
        },
    ),
    "microk8s": (
        "observe",
        ("../platforms/microk8s",),
        {"kubelet": {"rootDir": "/var/snap/microk8s/common/var/lib/kubelet"}},
    ),
    "openshift": (
        "observe",
        ("../platforms/openshift",),
        {
            "securityContextConstraints": "privileged",
            "agent": {"securityContext": {"seLinuxOptions": {"type": "spc_t"}}},
        },
    ),
}
"""Overlay and components of kustomize, and the chart's values that stand for them."""


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    assert HELM.exists(), f"{HELM} is missing: make setup"
    return subprocess.run([str(HELM), *words], capture_output=True, text=True, check=False)


def template(folder: Path, values: Object, namespace: str = "memqos-system") -> list[Object]:
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    done = helm("template", "memqos", str(CHART), "--namespace", namespace, "--values", str(file))
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def kustomize(folder: Path, overlay: str, components: tuple[str, ...]) -> list[Object]:
    shutil.copytree(KUSTOMIZE, folder / "kustomize")
    made = folder / "kustomize" / "overlays" / "made"
    made.mkdir()
    listed = ", ".join(f"../../components/{name}" for name in components)
    (made / FILE).write_text(f"resources: [../{overlay}]\ncomponents: [{listed}]\n")
    return rendered(made)


def comparable(objects: list[Object]) -> dict[tuple[str, str], Object]:
    """By kind and name, without Helm's own labels, meaningless orders and comments in files."""
    found = {}
    for each in objects:
        metadata = each["metadata"]
        labels = metadata.get("labels", {})
        metadata["labels"] = {k: v for k, v in labels.items() if k not in OF_HELM}
        if each["kind"] == "ConfigMap":
            metadata.pop("labels")
            each["data"] = {name: yaml.safe_load(text) for name, text in each["data"].items()}
        pod = each.get("spec", {}).get("template")
        if pod is not None:
            pod["metadata"].pop("annotations", None)
            pod["spec"]["volumes"].sort(key=lambda volume: volume["name"])
            for container in pod["spec"]["containers"]:
                container["volumeMounts"].sort(key=lambda mount: mount["mountPath"])
        found[each["kind"], metadata["name"]] = each
    return found


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_chart_makes_the_objects_of_kustomize(variant: str, tmp_path: Path) -> None:
    overlay, components, values = VARIANTS[variant]
    by_helm = template(tmp_path, {"namespace": {"create": True}, **values})
    assert comparable(by_helm) == comparable(kustomize(tmp_path, overlay, components))


def test_the_webhook_of_the_chart_is_that_of_kustomize(tmp_path: Path) -> None:
    values = {"webhook": {"enabled": True, "apiServerAddresses": ["192.0.2.1/32"]}}
    by_helm = comparable(template(tmp_path, values))
    by_kustomize = comparable(kustomize(tmp_path, "webhook", ("webhook-network-policy",)))
    del by_kustomize["Namespace", "memqos-system"]
    policy = by_kustomize["NetworkPolicy", "memqos-webhook"]["spec"]["ingress"][0]
    policy["from"] = [{"ipBlock": {"cidr": "192.0.2.1/32"}}]
    assert {key: by_helm[key] for key in by_kustomize} == by_kustomize


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_what_the_chart_makes_is_what_kubernetes_takes(
    variant: str, release: str, tmp_path: Path
) -> None:
    values = {**VARIANTS[variant][2], "webhook": {"enabled": True}}
    for each in template(tmp_path, values):
        if each["apiVersion"] != "monitoring.coreos.com/v1":
            kubernetes_validate.validate(each, release, strict=True)


@pytest.mark.parametrize("mode", ["observe", "enforce"])
@pytest.mark.parametrize("platform_name", PLATFORMS)
def test_the_values_of_a_platform_make_what_kubernetes_and_the_agent_accept(
    platform_name: str, mode: str, tmp_path: Path
) -> None:
    values = yaml.safe_load((CHART / "platforms" / f"{platform_name}.yaml").read_text())
    objects = template(tmp_path, {**values, "mode": mode})
    for each in objects:
        for release in RELEASES:
            kubernetes_validate.validate(each, release, strict=True)
    (found,) = [each for each in objects if each["kind"] == "ConfigMap"]
    file = tmp_path / "memqos.yaml"
    file.write_text(found["data"]["memqos.yaml"])
    load_configuration(str(file), {}, {})


def test_the_owners_of_k3s_are_mounted_where_the_agent_looks(tmp_path: Path) -> None:
    (agent,) = [
        each
        for each in kustomize(tmp_path, "enforce", ("../platforms/k3s",))
        if each["kind"] == "DaemonSet"
    ]
    kubernetes_validate.validate(agent, RELEASES[0], strict=True)
    spec = agent["spec"]["template"]["spec"]
    (volume,) = [each for each in spec["volumes"] if each["name"] == "runtime"]
    (mount,) = [each for each in spec["containers"][0]["volumeMounts"] if each["name"] == "runtime"]
    assert volume["hostPath"]["path"] == "/run/k3s/containerd"
    assert mount["mountPath"] == "/run/containerd"


@pytest.mark.parametrize("platform_name", PLATFORMS)
def test_no_values_make_the_namespace_that_helm_install_needs_before(
    platform_name: str, tmp_path: Path
) -> None:
    """Helm stores the release in it first: "namespaces … not found", or "already exists"."""
    values = yaml.safe_load((CHART / "platforms" / f"{platform_name}.yaml").read_text())
    assert "Namespace" not in {each["kind"] for each in template(tmp_path, values)}


def test_a_value_replaces_a_default_of_the_security_context(tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text("agent: {securityContext: {readOnlyRootFilesystem: false}}\n")
    words = ("template", "memqos", str(CHART), "-s", "templates/agent.yaml", "-f", str(file))
    (line,) = [each for each in helm(*words).stdout.splitlines() if "readOnlyRoot" in each]
    assert line.strip() == "readOnlyRootFilesystem: false"


@pytest.mark.parametrize(
    ("canary", "said"),
    [
        ({"labels": "a=b"}, "kubectl label pod NAME a=b"),
        ({"labels": "tier in (web, db)"}, "labels: tier in (web, db)"),
        ({"labels": None, "namespaces": ["shop"]}, "- shop"),
        (None, "It writes to every pod that config.select selects."),
    ],
)
def test_the_notes_say_which_pods_are_written_to(
    canary: Object | None, said: str, tmp_path: Path
) -> None:
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart)
    # Helm renders notes for a cluster alone.
    text = (chart / "templates" / "NOTES.txt").read_text()
    (chart / "templates" / "_notes.tpl").write_text(f'{{{{ define "notes" }}}}{text}{{{{ end }}}}')
    (chart / "templates" / "notes.yaml").write_text('notes: {{ include "notes" . | toJson }}\n')
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump({"mode": "enforce", "canary": canary}))
    done = helm("template", "memqos", str(chart), "-s", "templates/notes.yaml", "-f", str(file))
    notes = yaml.safe_load(done.stdout)["notes"]
    assert said in notes
    assert ("kubectl label pod" in notes) == (said == "kubectl label pod NAME a=b")


def test_the_page_about_platforms_has_all_of_them() -> None:
    page = (ROOT / "docs" / "platforms.md").read_text()
    assert [name for name in PLATFORMS if f"platforms/{name}.yaml" not in page] == []


def test_a_webhook_of_one_replica_does_not_keep_its_node_from_being_drained(
    tmp_path: Path,
) -> None:
    objects = template(tmp_path, {"webhook": {"enabled": True, "replicas": 1}})
    (budget,) = [each for each in objects if each["kind"] == "PodDisruptionBudget"]
    assert budget["spec"]["maxUnavailable"] == 1
    assert "minAvailable" not in budget["spec"]


def test_helm_lint_finds_nothing() -> None:
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout


def test_the_chart_observes_by_default(tmp_path: Path) -> None:
    (found,) = [each for each in template(tmp_path, {}) if each["kind"] == "ConfigMap"]
    assert yaml.safe_load(found["data"]["memqos.yaml"])["mode"] == "observe"


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"mode": "enforced"}, "mode must be one of the following"),
        ({"modes": "enforce"}, "Additional property modes is not allowed"),
        ({"config": {"facto": 0.9}}, "Additional property facto is not allowed"),
        ({"kubelet": {"configFile": "config.yaml"}}, "kubelet.configFile"),
        ({"webhook": {"apiServerAddresses": ["ADDRESS"]}}, "apiServerAddresses.0"),
        ({"canary": {"label": "a=b"}}, "canary: Additional property label is not allowed"),
        ({"agent": {"nodeSelector": {"memqos": True}}}, "agent.nodeSelector.memqos: Invalid type"),
        ({"agent": {"podAnnotations": {"a": 5}}}, "agent.podAnnotations.a: Invalid type"),
        ({"agent": {"maxUnavailable": "some"}}, "agent.maxUnavailable: Does not match"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(
    values: Object, complaint: str, tmp_path: Path
) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    done = helm("template", "memqos", str(CHART), "--values", str(file))
    assert done.returncode != 0
    assert complaint in done.stderr


def test_the_schema_of_config_is_the_agents_own() -> None:
    published = json.loads((ROOT / "docs" / "memqos.schema.json").read_text())["properties"]
    of_chart = json.loads((CHART / "values.schema.json").read_text())["properties"]
    elsewhere = {"apiVersion", "kind", "mode", "canary"}
    expected = {name: each for name, each in published.items() if name not in elsewhere}
    assert of_chart["config"]["properties"] == expected, "copy it from docs/memqos.schema.json"
    assert of_chart["canary"]["properties"] == published["canary"]["properties"]


@pytest.mark.parametrize("mode", ["observe", "enforce"])
def test_the_agent_accepts_the_configuration_of_the_chart(mode: str, tmp_path: Path) -> None:
    objects = template(tmp_path, {"mode": mode})
    (found,) = [each for each in objects if each["kind"] == "ConfigMap"]
    file = tmp_path / "memqos.yaml"
    file.write_text(found["data"]["memqos.yaml"])
    load_configuration(str(file), {}, {})


def test_the_webhook_accepts_the_policy_of_the_chart(tmp_path: Path) -> None:
    objects = template(tmp_path, {"webhook": {"enabled": True}})
    (found,) = [each for each in objects if each["metadata"]["name"] == "memqos-policy"]
    (document,) = read_documents(found["data"]["policy.yaml"].encode(), "policy.yaml")
    assert isinstance(document, Document)
    assert policy_from_document(document).rules


def test_an_agent_in_another_namespace_leaves_its_own_alone(tmp_path: Path) -> None:
    objects = template(tmp_path, {"webhook": {"enabled": True}}, namespace="nodes")
    configuration = next(
        yaml.safe_load(each["data"]["memqos.yaml"])
        for each in objects
        if each["kind"] == "ConfigMap" and "memqos.yaml" in each["data"]
    )
    assert "nodes" in configuration["select"]["notNamespaces"]
    for each in objects:
        for webhook in each.get("webhooks", ()):
            (expression,) = webhook["namespaceSelector"]["matchExpressions"]
            assert {"kube-system", "nodes"} <= set(expression["values"])
        assert each["metadata"].get("namespace", "nodes") == "nodes"


def test_the_chart_is_of_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)
