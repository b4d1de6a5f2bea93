"""What is deployed is valid, as small as it can be, and what memqos itself would accept."""

import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from ipaddress import ip_network
from pathlib import Path
from typing import Any, get_args

import kubernetes_validate
import pytest
import yaml
from tests.commands import ROOT
from tests.overlays import pod_specs, rendered

from memqos.agent.configuration.sources import load_configuration
from memqos.findings.policy import policy_from_document
from memqos.host.agent_endpoint import AGENT_NAMESPACE, AGENT_PORT, CA_CONFIG_MAP
from memqos.kernel.machine import NRI_SOCKET
from memqos.manifests.documents import Document, read_documents
from memqos.plan.names import Driver, cgroup_names

KUSTOMIZE = ROOT / "deploy" / "kustomize"
OVERLAYS = sorted(path.name for path in (KUSTOMIZE / "overlays").iterdir())
PLATFORMS = sorted(path.name for path in (KUSTOMIZE / "platforms").iterdir())
RELEASES = ("1.28", "1.32", "1.36")
OWN = ("monitoring.coreos.com/v1", "kustomize.config.k8s.io/v1beta1")
"""Groups that Kubernetes itself has no schema of."""

Object = dict[str, Any]


@cache
def kustomize() -> tuple[str, ...] | None:
    """kustomize 4 or newer, by itself or in kubectl; older ones know no components."""
    if program := shutil.which("kustomize"):
        return program, "build"
    if program := shutil.which("kubectl"):
        asked = [program, "version", "--client", "-o", "json"]
        message = subprocess.run(asked, capture_output=True, check=False, text=True).stdout
        version = json.loads(message or "{}").get("kustomizeVersion", "v0")
        if int(version.removeprefix("v").partition(".")[0]) >= 4:
            return program, "kustomize"
    return None


def by_kustomize(folder: Path) -> list[Object]:
    command = kustomize()
    assert command is not None
    done = subprocess.run([*command, str(folder)], capture_output=True, check=True, text=True)
    return list(
        yaml.safe_load_all(re.sub(r"(memqos-(?:agent|policy))-[a-z0-9]{10}\b", r"\1", done.stdout))
    )


def manifests() -> Iterator[tuple[str, Object]]:
    for file in sorted(KUSTOMIZE.rglob("*.yaml")):
        for found in yaml.safe_load_all(file.read_text()):
            if not found["apiVersion"].startswith(("kustomize.", "memqos.io/")):
                yield f"{file.relative_to(KUSTOMIZE)}:{found['kind']}", found


ALL = dict(manifests())


@pytest.mark.parametrize("name", [name for name in ALL if ALL[name]["apiVersion"] not in OWN])
@pytest.mark.parametrize("release", RELEASES)
def test_every_manifest_is_what_kubernetes_takes(name: str, release: str) -> None:
    kubernetes_validate.validate(ALL[name], release, strict=True)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_what_an_overlay_becomes_is_what_kubernetes_takes(overlay: str) -> None:
    objects = rendered(KUSTOMIZE / "overlays" / overlay)
    assert objects
    for each in objects:
        kubernetes_validate.validate(each, RELEASES[-1], strict=True)


def key(found: Object) -> tuple[str, str]:
    return found["kind"], found["metadata"]["name"]


@pytest.fixture
def everything(tmp_path: Path) -> Path:
    """An overlay with all components."""
    shutil.copytree(KUSTOMIZE, tmp_path / "kustomize")
    overlay = tmp_path / "kustomize" / "overlays" / "all"
    overlay.mkdir()
    components = [f"../../components/{path.name}" for path in (KUSTOMIZE / "components").iterdir()]
    (overlay / "kustomization.yaml").write_text(
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"
        f"resources: [../enforce]\ncomponents: [{', '.join(components)}]\n"
    )
    return overlay


@pytest.mark.skipif(
    kustomize() is None, reason="kustomize 4 or newer is not here, nor a kubectl that has it"
)
def test_kustomize_makes_of_all_overlays_what_these_tests_look_at(everything: Path) -> None:
    for folder in (*sorted((KUSTOMIZE / "overlays").iterdir()), everything):
        made = by_kustomize(folder)
        assert sorted(made, key=key) == sorted(rendered(folder), key=key)


@pytest.mark.parametrize("overlay", [name for name in OVERLAYS if name != "webhook"])
@pytest.mark.parametrize("platform", PLATFORMS)
def test_the_component_of_a_platform_goes_with_every_overlay_and_component(
    platform: str, overlay: str, tmp_path: Path
) -> None:
    shutil.copytree(KUSTOMIZE, tmp_path / "kustomize")
    folder = tmp_path / "kustomize" / "overlays" / "made"
    folder.mkdir()
    components = f"../../components/nri, ../../platforms/{platform}, ../../components/pod-monitor"
    (folder / "kustomization.yaml").write_text(
        f"resources: [../{overlay}]\ncomponents: [{components}]\n"
    )
    objects = rendered(folder)
    for each in objects:
        if each["apiVersion"] not in OWN:
            kubernetes_validate.validate(each, RELEASES[0], strict=True)
    if kustomize() is not None:
        assert sorted(by_kustomize(folder), key=key) == sorted(objects, key=key)


def test_components_are_added_to_the_agent(everything: Path) -> None:
    objects = rendered(everything)
    assert "PodMonitor" in {each["kind"] for each in objects}
    (spec,) = pod_specs(objects)
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    mounts = {mount["name"] for mount in spec["containers"][0]["volumeMounts"]}
    assert {"bus", "runtime", "nri"} <= volumes.keys() == mounts


def test_the_runtime_s_plugin_is_never_there_twice(everything: Path) -> None:
    (agent,) = [each for each in rendered(everything) if each["kind"] == "DaemonSet"]
    assert agent["spec"]["updateStrategy"]["rollingUpdate"]["maxSurge"] == 0
    container = agent["spec"]["template"]["spec"]["containers"][0]
    assert {"name": "MEMQOS_NRI", "value": "on"} in container["env"]
    # The folder, not the socket: a runtime that is restarted makes another one.
    (mount,) = [each for each in container["volumeMounts"] if each["name"] == "nri"]
    assert f"{mount['mountPath']}/nri.sock" == NRI_SOCKET


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_no_container_may_do_more_than_it_has_to(overlay: str) -> None:
    for spec in pod_specs(rendered(KUSTOMIZE / "overlays" / overlay)):
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
        for container in spec["containers"]:
            context = container["securityContext"]
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert context["readOnlyRootFilesystem"] is True
            assert context["allowPrivilegeEscalation"] is False
            assert "privileged" not in context
            assert {"requests", "limits"} <= container["resources"].keys()
            assert {"livenessProbe", "readinessProbe"} <= container.keys()


@pytest.mark.parametrize(
    ("overlay", "writes"),
    [
        ("observe", set()),
        ("enforce", {"cgroups"}),
        ("enforce-systemd", {"kubepods"}),
        ("enforce-cgroupfs", {"kubepods"}),
    ],
)
def test_only_an_agent_that_enforces_can_write_to_cgroups(overlay: str, writes: set[str]) -> None:
    (spec,) = pod_specs(rendered(KUSTOMIZE / "overlays" / overlay))
    mounts = {mount["name"]: mount for mount in spec["containers"][0]["volumeMounts"]}
    assert {name for name, mount in mounts.items() if not mount.get("readOnly")} == (
        {"run", "records"} | writes
    )


@pytest.mark.parametrize("driver", get_args(Driver))
def test_the_pods_of_each_driver_are_where_its_overlay_mounts_them(driver: Driver) -> None:
    overlay = KUSTOMIZE / "overlays" / f"enforce-{driver}"
    (spec,) = pod_specs(rendered(overlay))
    (mount,) = [m for m in spec["containers"][0]["volumeMounts"] if m["name"] == "kubepods"]
    (volume,) = [v for v in spec["volumes"] if v["name"] == "kubepods"]
    names, comment = cgroup_names(driver), (overlay / "kustomization.yaml").read_text()
    assert mount["mountPath"] == volume["hostPath"]["path"] == f"/sys/fs/cgroup{names.kubepods}"
    assert f"is /sys/fs/cgroup{cgroup_names(driver, '/a/b').kubepods}.\n" in comment
    reserved = "/podruntime" if driver == "cgroupfs" else "/podruntime.slice"
    assert f"{reserved} is /sys/fs/cgroup{names.reserved_cgroup(reserved)}" in comment


def rights(folder: Path, kind: str = "ClusterRole") -> set[tuple[str, str]]:
    """What roles of a kind allow in an overlay."""
    return {
        (resource, verb)
        for each in rendered(folder)
        if each["kind"] == kind
        for rule in each["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


OF_AGENT = {
    ("pods", "list"),
    ("pods", "watch"),
    ("nodes", "list"),
    ("nodes", "watch"),
    ("nodes/configz", "get"),
    ("events", "create"),
    ("events", "patch"),
}


def test_the_agent_may_read_pods_and_write_events_and_nothing_else(everything: Path) -> None:
    for overlay in OVERLAYS:
        assert rights(KUSTOMIZE / "overlays" / overlay) in (set(), OF_AGENT)
    reviews = {("tokenreviews", "create"), ("subjectaccessreviews", "create")}
    assert rights(everything) == OF_AGENT | reviews


def test_the_read_endpoint_is_off_unless_its_component_is_there(everything: Path) -> None:
    def settings(folder: Path) -> dict[str, str]:
        (spec,) = pod_specs(rendered(folder))
        return {each["name"]: each.get("value", "") for each in spec["containers"][0]["env"]}

    for overlay in set(OVERLAYS) - {"webhook"}:
        assert not [
            name for name in settings(KUSTOMIZE / "overlays" / overlay) if "ENDPOINT" in name
        ]
    on = {name: text for name, text in settings(everything).items() if "ENDPOINT" in name}
    endpoint = load_configuration(None, on, {}).endpoint
    assert endpoint.listen == f"0.0.0.0:{AGENT_PORT}"
    (spec,) = pod_specs(rendered(everything))
    (mount,) = [m for m in spec["containers"][0]["volumeMounts"] if m["name"] == "endpoint-tls"]
    assert endpoint.tls_cert == f"{mount['mountPath']}/tls.crt"
    assert {"name": "endpoint", "containerPort": AGENT_PORT} in spec["containers"][0]["ports"]


def test_those_who_call_an_agent_get_the_way_to_it_and_no_more(everything: Path) -> None:
    assert rights(everything, "Role") == {
        ("pods", "list"),
        ("pods/portforward", "get"),
        ("pods/portforward", "create"),
        ("configmaps", "get"),
    }
    (role,) = [each for each in rendered(everything) if each["kind"] == "Role"]
    assert role["metadata"]["namespace"] == AGENT_NAMESPACE
    (named,) = [rule for rule in role["rules"] if rule["resources"] == ["configmaps"]]
    assert named["resourceNames"] == [CA_CONFIG_MAP]


def test_a_webhook_never_stands_in_its_own_way() -> None:
    for each in ALL.values():
        for webhook in each.get("webhooks", ()):
            (expression,) = webhook["namespaceSelector"]["matchExpressions"]
            assert expression["operator"] == "NotIn"
            assert {"kube-system", "memqos-system"} <= set(expression["values"])


def test_a_network_policy_is_of_no_use_before_its_addresses_are_filled_in(tmp_path: Path) -> None:
    """One with a wrong address would block reviews; Kubernetes refuses one that is no address."""
    shutil.copytree(KUSTOMIZE, tmp_path / "kustomize")
    overlay = tmp_path / "kustomize" / "overlays" / "webhook"
    file = overlay / "kustomization.yaml"
    file.write_text(file.read_text().replace("# components:\n# -", "components:\n-"))
    objects = {each["kind"]: each for each in rendered(overlay)}
    spec = objects["NetworkPolicy"]["spec"]
    template = objects["Deployment"]["spec"]["template"]
    assert spec["podSelector"]["matchLabels"] == template["metadata"]["labels"]
    (rule,) = spec["ingress"]
    assert [port["port"] for port in rule["ports"]] == ["https"]
    for peer in rule["from"]:
        with pytest.raises(ValueError, match="ADDRESS_OF_AN_API_SERVER"):
            ip_network(peer["ipBlock"]["cidr"])


@pytest.mark.parametrize("file", sorted(KUSTOMIZE.rglob("memqos.yaml")), ids=str)
def test_the_agents_configuration_is_one_it_takes(file: Path) -> None:
    load_configuration(str(file), {}, {})


def test_the_policy_is_one_the_webhook_takes() -> None:
    file = KUSTOMIZE / "overlays" / "webhook" / "policy.yaml"
    (document,) = read_documents(file.read_bytes(), str(file))
    assert isinstance(document, Document)
    assert policy_from_document(document).rules


def test_the_image_is_the_one_this_tree_makes() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for file in KUSTOMIZE.rglob("kustomization.yaml"):
        for image in yaml.safe_load(file.read_text()).get("images", ()):
            assert (image["newName"], image["newTag"]) == ("localhost/memqos", version)
