"""Plain data to standard output, as JSON or YAML."""

import sys
from typing import Any, Literal

import msgspec


def emit(data: Any, form: Literal["json", "yaml"]) -> None:
    """Print data in the form asked for."""
    if form == "json":
        print(msgspec.json.format(msgspec.json.encode(data)).decode())
    else:
        import yaml

        dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
        yaml.dump(
            msgspec.to_builtins(data),
            sys.stdout,
            Dumper=dumper,
            sort_keys=False,
            allow_unicode=True,
            default_flow_style=False,
        )


def complain(error: object) -> None:
    """One line to standard error."""
    sys.stdout.flush()
    print(error, file=sys.stderr)
