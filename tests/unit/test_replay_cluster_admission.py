"""What Kubernetes was recorded to answer about admission is what memqos answers."""

import json
from pathlib import Path

import pytest

from memqos.cli.conformance import case_differences
from memqos.cli.replay import admission

CASES = Path(__file__).parents[1] / "conformance" / "cases"


@pytest.mark.parametrize(
    "area", ["limitrange", "quota_usage", "quota_admission", "resize", "hpa_requests"]
)
def test_every_recorded_admission_is_answered_alike(area: str) -> None:
    replay = getattr(admission, f"replay_{area}")
    lines = (CASES / f"{area}.jsonl").read_text().splitlines()
    different = {}
    for line in lines:
        case = json.loads(line)
        found = case_differences(area, case["expect"], replay(case["input"]))
        if found:
            different[case["id"]] = [str(difference) for difference in found]
    assert len(lines) > 200
    assert different == {}
