"""What holds for a configuration whatever is written into it."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memqos.agent.configuration import AGENT_API_VERSION, AGENT_KIND, AgentConfiguration
from memqos.agent.configuration.fields import CONFIG_FIELDS
from memqos.agent.configuration.fields import ConfigPath as FieldPath
from memqos.agent.configuration.schema import configuration_data
from memqos.agent.configuration.sources import read_agent_configuration
from memqos.agent.core.overrides import overrides_of
from memqos.errors import InputError
from memqos.kube.pod import ObjectMeta, Pod
from memqos.kube.selector import matches, requirements

TEXTS = st.sampled_from(
    [
        "",
        "enforce",
        "observe",
        "None",
        "TieredReservation",
        "1.37",
        "1.30",
        "0.5",
        "1",
        "0",
        "-1",
        "60s",
        "1m",
        "true",
        "false",
        "json",
        "text",
        "/etc/pods",
        "https://127.0.0.1",
        "http://n",
        "127.0.0.1:0",
        "shop",
        "a=b",
        "a in (b",
        "MemoryQoS=true",
        "X",
        "nan",
        "1e999",
        "\x00",
        "\n",
    ]
) | st.builds(
    "{}{}{}".format,
    st.sampled_from(["", "1.", "https://", "127.0.0.1:", "/"]),
    st.text(max_size=8) | st.sampled_from(["9" * 5000, "a" * 200]),
    st.sampled_from(["", "s"]),
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda held: st.lists(held, max_size=3) | st.dictionaries(TEXTS, held, max_size=3),
    max_leaves=6,
)
PATHS = st.sampled_from(list(CONFIG_FIELDS))


def nested(values: dict[FieldPath, Any]) -> dict[str, Any]:
    data: dict[str, Any] = {"apiVersion": AGENT_API_VERSION, "kind": AGENT_KIND}
    for (*sections, name), value in values.items():
        held = data
        for section in sections:
            held = held.setdefault(section, {})
        held[name] = value
    return data


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("configuration") / "memqos.json"


@given(values=st.dictionaries(PATHS, VALUES, max_size=6))
def test_any_file_is_taken_or_refused_where_it_is_wrong(
    file: Path, values: dict[FieldPath, Any]
) -> None:
    file.write_bytes(msgspec.json.encode(nested(values)))
    reading = read_agent_configuration(str(file), {}, {})
    assert (reading.configuration is None) == bool(reading.faults)
    for fault in reading.faults:
        assert fault.file == str(file)
        assert fault.line is not None
        assert fault.what


@given(
    data=st.binary(max_size=200)
    | TEXTS.map(lambda text: f"kind: {text}".encode("utf-8", "replace"))
)
def test_whatever_the_bytes_are_nothing_but_faults_comes_of_them(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    assert read_agent_configuration(str(file), {}, {}).faults


@given(
    environ=st.dictionaries(
        st.sampled_from([field.variable for field in CONFIG_FIELDS.values()]), TEXTS, max_size=5
    ),
    flags=st.dictionaries(PATHS.map(".".join), TEXTS, max_size=5),
)
def test_any_environment_and_any_flags_are_taken_or_refused_by_name(
    environ: dict[str, str], flags: dict[str, object]
) -> None:
    reading = read_agent_configuration(None, environ, flags)
    assert (reading.configuration is None) == bool(reading.faults)
    named = {CONFIG_FIELDS[tuple(flag.split("."))].flag for flag in flags}
    assert {fault.field for fault in reading.faults} <= {*environ, *named}


@given(
    environ=st.dictionaries(st.sampled_from([f.variable for f in CONFIG_FIELDS.values()]), TEXTS)
)
def test_what_is_in_force_reads_back_as_itself(file: Path, environ: dict[str, str]) -> None:
    configuration = read_agent_configuration(None, environ, {}).configuration
    if configuration is not None:
        file.write_bytes(msgspec.json.encode(configuration_data(configuration)))
        assert read_agent_configuration(str(file), {}, {}).configuration == configuration


LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from(["", "x", "y"]))
CONDITIONS = st.sampled_from(
    ["a", "!a", "a=x", "a!=x", "b in (x,y)", "b notin (x)", "c==y", "c in ()", "c="]
)


@given(st.text(alphabet="ab=!(), \n<in", max_size=20))
def test_any_text_is_a_selector_or_refused(text: str) -> None:
    with suppress(InputError):
        assert all(requirement.key for requirement in requirements(text))


@given(LABELS, st.lists(CONDITIONS, max_size=4))
def test_a_selector_holds_where_all_of_its_conditions_hold(
    labels: dict[str, str], conditions: list[str]
) -> None:
    together = matches(", ".join(conditions), labels)
    assert together == all(matches(condition, labels) for condition in conditions)


@given(LABELS, st.sampled_from("abc"), st.sampled_from(["", "x", "y"]))
def test_opposites_exclude_each_other(labels: dict[str, str], key: str, value: str) -> None:
    assert matches(key, labels) != matches(f"!{key}", labels)
    assert matches(f"{key}={value}", labels) != matches(f"{key}!={value}", labels)
    assert matches(f"{key} in (x)", labels) != matches(f"{key} notin (x)", labels)


ANNOTATED = st.dictionaries(
    st.sampled_from(["mode", "throttling-factor", "reservation", "x"]).map("memqos.io/{}".format),
    TEXTS | st.sampled_from(["HardReservation", "0.95", "0.1"]),
)


@given(
    annotations=ANNOTATED,
    mode=st.sampled_from(["observe", "enforce"]),
    factor=st.none() | st.sampled_from([0.1, 0.5, 0.9, 1.0]),
    policy=st.sampled_from(["None", "TieredReservation", "HardReservation"]),
)
def test_no_annotation_strengthens_what_the_node_gives(
    annotations: dict[str, str], mode: Any, factor: float | None, policy: Any
) -> None:
    configuration = AgentConfiguration(
        mode=mode, factor=factor, policy=policy, allow_namespaces=("platform",)
    )
    found = overrides_of(Pod(ObjectMeta(namespace="shop", annotations=annotations)), configuration)
    ranks = ["None", "TieredReservation", "HardReservation"]
    assert found.mode in ("observe", mode)
    assert found.factor is None or found.factor == 1 or found.factor >= (factor or 1)
    assert found.reservation is None or ranks.index(found.reservation) <= ranks.index(policy)
