"""Names of the pods of a node, by where their logs are: /var/log/pods/<namespace>_<name>_<uid>."""

import os
from typing import Final

POD_LOGS: Final = "/var/log/pods"


def pod_names(folder: str = POD_LOGS) -> dict[str, str]:
    """UID → namespace/name; empty where the folder cannot be read."""
    try:
        entries = os.listdir(folder)
    except OSError:
        return {}
    parts = [entry.split("_") for entry in entries]
    return {found[2]: f"{found[0]}/{found[1]}" for found in parts if len(found) == 3}
