"""Overlays as kustomize renders them, as far as the project's own go; no program is needed.

Names of generated ConfigMaps are kept as they are: kustomize adds a hash of their content.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]

CLUSTER_WIDE = frozenset(
    {
        "Namespace",
        "ClusterRole",
        "ClusterRoleBinding",
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
    }
)
FILE = "kustomization.yaml"


class Unrenderable(Exception):
    """Something that kustomize may know, and this does not."""


def rendered(folder: Path) -> list[Object]:
    """All objects of a kustomization."""
    return _applied(folder, [])


def _applied(folder: Path, objects: list[Object]) -> list[Object]:
    """What a kustomization, or a component, makes of objects."""
    content = yaml.safe_load((folder / FILE).read_text())
    if unknown := content.keys() - _STEPS.keys() - {"apiVersion", "kind"}:
        raise Unrenderable(f"{folder / FILE}: {', '.join(sorted(unknown))}")
    for name, step in _STEPS.items():
        if name in content:
            objects = step(folder, objects, content[name])
    return objects


def _resources(folder: Path, objects: list[Object], names: list[str]) -> list[Object]:
    for name in names:
        path = folder / name
        objects = objects + (
            rendered(path) if path.is_dir() else list(yaml.safe_load_all(path.read_text()))
        )
    return objects


def _components(folder: Path, objects: list[Object], names: list[str]) -> list[Object]:
    for name in names:
        objects = _applied(folder / name, objects)
    return objects


def _config_maps(folder: Path, objects: list[Object], given: list[Object]) -> list[Object]:
    for each in given:
        data = {name: (folder / name).read_text() for name in each["files"]}
        if each.get("behavior") == "merge":
            (found,) = _named(objects, "ConfigMap", each["name"])
            found["data"] |= data
        else:
            made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": each["name"]}}
            objects = [*objects, {**made, "data": data}]
    return objects


def _patches(_folder: Path, objects: list[Object], given: list[Object]) -> list[Object]:
    for each in given:
        patch = yaml.safe_load(each["patch"])
        if isinstance(patch, dict):
            for target in _named(objects, patch["kind"], patch["metadata"]["name"]):
                _merge(target, patch)
        else:
            for target in _named(objects, each["target"]["kind"], each["target"]["name"]):
                for step in patch:
                    _patch(target, **step)
    return objects


def _merge(target: Object, patch: Object) -> None:
    """A strategic merge patch, of objects and of lists whose items have names: those come first."""
    for key, value in patch.items():
        if isinstance(value, dict):
            _merge(target[key], value)
        elif isinstance(value, list):
            for item in value:
                (found,) = [each for each in target[key] if each["name"] == item["name"]]
                _merge(found, item)
                target[key].sort(key=lambda each, first=found: each is not first)
        else:
            target[key] = value


def _patch(target: Any, op: str, path: str, value: Any) -> None:
    """RFC 6902, the operations that are used."""
    *above, last = path.removeprefix("/").split("/")
    for name in above:
        target = target[int(name) if isinstance(target, list) else name]
    key = int(last) if isinstance(target, list) and last != "-" else last
    if op == "add" and key == "-":
        target.append(value)
    elif op == "test":
        if target[key] != value:
            raise Unrenderable(f"{path} is not {value!r}")
    elif op == "replace" or (op == "add" and isinstance(target, dict)):
        target[key] = value
    else:
        raise Unrenderable(f"{op} {path}")


def _namespace(_folder: Path, objects: list[Object], name: str) -> list[Object]:
    for each in objects:
        if each["kind"] not in CLUSTER_WIDE:
            each["metadata"]["namespace"] = name
    return objects


def _images(_folder: Path, objects: list[Object], given: list[Object]) -> list[Object]:
    names = {each["name"]: f"{each['newName']}:{each['newTag']}" for each in given}
    for spec in pod_specs(objects):
        for container in spec["containers"]:
            container["image"] = names.get(container["image"], container["image"])
    return objects


def pod_specs(objects: Iterable[Object]) -> list[Object]:
    """Those of all workloads."""
    return [
        each["spec"]["template"]["spec"] for each in objects if "template" in each.get("spec", {})
    ]


def _named(objects: Iterable[Object], kind: str, name: str) -> list[Object]:
    found = [each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    if not found:
        raise Unrenderable(f"there is no {kind} {name}")
    return found


_STEPS: dict[str, Callable[[Path, list[Object], Any], list[Object]]] = {
    "resources": _resources,
    "components": _components,
    "configMapGenerator": _config_maps,
    "patches": _patches,
    "namespace": _namespace,
    "images": _images,
}
