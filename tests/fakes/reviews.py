"""Reviews as an API server sends them."""

import json
from typing import Any

UID = "705ab4f5"


def container(**resources: Any) -> dict[str, Any]:
    return {"name": "app", "image": "app", "resources": resources}


def review(spec: Any, **request: Any) -> bytes:
    """A review of a new pod, unless the request says otherwise."""
    sent = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": spec}
    return json.dumps(
        {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": UID,
                "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "namespace": "shop",
                "operation": "CREATE",
                "object": sent,
                "oldObject": None,
                "options": {"kind": "CreateOptions"},
                **request,
            },
        }
    ).encode()
