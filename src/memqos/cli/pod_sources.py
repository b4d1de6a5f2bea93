"""The options that say where a node's pods come from, and what they come to."""

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from memqos.cli.clusters import CLUSTER, LiveCluster, cluster_options
from memqos.converge.sources import PodSource, is_url, parse_pod_source
from memqos.host.kubelet import SECURE_URL, KubeletCredentials

_F = TypeVar("_F", bound=Callable[..., Any])


def pod_source_options(command: _F) -> _F:
    """--pods, and what a kubelet wants to know before it answers."""
    for option in (
        click.option(
            "--server-name", metavar="NAME", help="The name in the kubelet's certificate."
        ),
        click.option("--client-key", metavar="FILE", help="The key of --client-cert."),
        click.option(
            "--client-cert", metavar="FILE", help="A certificate to ask the kubelet with."
        ),
        click.option("--ca-file", metavar="FILE", help="Who signed the kubelet's certificate."),
        click.option("--token-file", metavar="FILE", help="A token to ask the kubelet with."),
        click.option(
            "--pods",
            metavar="SOURCE",
            help=f"A file, a folder, a kubelet's address such as {SECURE_URL}, or the word "
            "cluster: "
            "the API server, asked for the pods of this node.",
        ),
        cluster_options("context", "node_name"),
    ):
        command = option(command)
    return command


def pod_source_from(options: Mapping[str, Any]) -> PodSource | None:
    """The source these options of `source_options` name; None where none is named."""
    text, live = options["pods"], LiveCluster(options["context"], node_name=options["node_name"])
    if text is None and live.is_chosen:
        text = CLUSTER
    if text != CLUSTER and live.is_chosen:
        raise click.UsageError("--context and --node-name are for a cluster: --pods names none")
    given = {field: options[field] for field in KubeletCredentials.__struct_fields__}
    named = [f"--{field.replace('_', '-')}" for field, value in given.items() if value is not None]
    if named and (text is None or not is_url(text)):
        raise click.UsageError(f"{named[0]} is for a kubelet: --pods names none")
    if given["client_key"] and not given["client_cert"]:
        raise click.UsageError("--client-key without --client-cert")
    if text == CLUSTER:
        from memqos.converge.cluster import ClusterPods

        return ClusterPods(live.server, live.node_name or os.uname().nodename.lower())
    return None if text is None else parse_pod_source(text, KubeletCredentials(**given))
