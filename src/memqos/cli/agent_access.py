"""How commands reach the read endpoints of a cluster's agents."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from memqos.cli.cluster_access import LiveCluster
from memqos.cli.help_sections import help_section

if TYPE_CHECKING:
    from memqos.host.agent_endpoint import AgentEndpoints

_F = TypeVar("_F", bound=Callable[..., Any])


@help_section("Agent")
def agent_access_options(command: _F) -> _F:
    """Where agents are, whom to trust, and the token to show them."""
    for option in (
        click.option(
            "--agent-token",
            metavar="FILE",
            help="A bearer token for the agent.  [default: that of the context's user]",
        ),
        click.option(
            "--agent-ca",
            metavar="FILE",
            help="The CA of the agents' certificate.  [default: ConfigMap memqos-agent-ca]",
        ),
        click.option(
            "--agent-address",
            metavar="HOST:PORT",
            help="The address of the agent, to connect directly.  [default: by port-forward]",
        ),
        click.option(
            "--agent-namespace",
            metavar="NAME",
            default="memqos-system",
            help="The namespace of the agents.  [default: memqos-system]",
        ),
    ):
        command = option(command)
    return command


class AgentAccessOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `agent_access_options`, as they were given."""

    agent_namespace: str
    agent_address: str | None
    agent_ca: str | None
    agent_token: str | None


def agent_endpoints(live: LiveCluster, options: AgentAccessOptions) -> "AgentEndpoints":
    """The agents of a cluster, as the options say; no connection is made yet."""
    from memqos.host.agent_endpoint import AgentAccess, AgentEndpoints

    access = AgentAccess(
        namespace=options.agent_namespace,
        address=options.agent_address,
        ca_file=options.agent_ca,
        token_file=options.agent_token,
    )
    return AgentEndpoints(live.server, access)
