"""The configuration of a kubelet's process: its flags, and the files that these name."""

import os
from collections.abc import Iterator
from typing import Final

import msgspec

from memqos.errors import InputError, os_reason
from memqos.host.local_kubelet import KubeletProcess
from memqos.kube.kubelet.flags import CommandLine, command_line_of, merge_configuration
from memqos.settings.facts import RawKubeletConfig
from memqos.settings.resolver import configuration_document

_DROP_IN: Final = ".conf"


def process_configuration(
    process: KubeletProcess, complaints: list[str]
) -> RawKubeletConfig | None:
    """What a process was started with, its files as they are now; None where one is unreadable."""
    try:
        line = command_line_of(process.arguments[1:])
        file = None if line.config is None else _read_file(line.config)
        drop_ins = [] if line.config_dir is None else list(_drop_ins(line.config_dir))
        if file is not None and not drop_ins and not line.fields:
            return msgspec.structs.replace(file, is_in_use=True)
        data = merge_configuration(
            {} if file is None else configuration_document(file).data,
            [configuration_document(each).data for each in drop_ins],
            line,
        )
    except InputError as error:
        complaints.append(f"the kubelet's configuration: {error}")
        return None
    name = _configuration_name(file, drop_ins, line)
    return RawKubeletConfig(
        name,
        msgspec.json.encode(data),
        is_in_use=True,
        flag_gates=tuple(line.fields.get("featureGates", ())),
    )


def _configuration_name(
    file: RawKubeletConfig | None, drop_ins: list[RawKubeletConfig], line: CommandLine
) -> str:
    parts = [] if file is None else [file.name]
    parts += [f"{len(drop_ins)} drop-ins of {line.config_dir}"] if drop_ins else []
    flags = f" ({', '.join(line.flags)})" if line.flags else ""
    return " and ".join([*parts, f"the flags of the kubelet's process{flags}"])


def _read_file(file: str) -> RawKubeletConfig:
    if not os.path.isabs(file):
        raise InputError("it is named relative to the folder the kubelet was started in", file=file)
    try:
        with open(file, "rb") as opened:
            return RawKubeletConfig(file, opened.read())
    except OSError as error:
        raise InputError(os_reason(error), file=file) from None


def _drop_ins(folder: str) -> Iterator[RawKubeletConfig]:
    """In the order of their names, folders within included, as filepath.WalkDir meets them."""
    if not os.path.isabs(folder):
        raise InputError(
            "it is named relative to the folder the kubelet was started in", file=folder
        )
    try:
        entries = sorted(os.scandir(folder), key=lambda each: each.name)
    except OSError as error:
        raise InputError(os_reason(error), file=folder) from None
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _drop_ins(entry.path)
        elif entry.name.endswith(_DROP_IN):
            yield _read_file(entry.path)
