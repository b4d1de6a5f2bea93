"""An agent is told by a file, the environment and flags, or says what is wrong with them."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from memqos.agent.configuration import AgentConfiguration, PodSourceConfig, RampConfig
from memqos.agent.configuration.fields import CONFIG_FIELDS, ConfigField
from memqos.agent.configuration.schema import configuration_data
from memqos.agent.configuration.sources import (
    ConfigurationResult,
    load_configuration,
    read_agent_configuration,
)
from memqos.errors import InputError
from memqos.kube.pod import ObjectMeta, Pod
from memqos.kube.selector import Selector

HEAD = "apiVersion: memqos.io/v1alpha1\nkind: AgentConfiguration\n"
NOTHING: Mapping[str, str] = {}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "memqos.yaml"


def reading(
    file: Path, text: str, environ: Mapping[str, str] = NOTHING, **flags: object
) -> ConfigurationResult:
    file.write_text(HEAD + text)
    named = {name.replace("__", "."): value for name, value in flags.items()}
    return read_agent_configuration(str(file), environ, named)


def taken(
    file: Path, text: str, environ: Mapping[str, str] = NOTHING, **flags: object
) -> AgentConfiguration:
    found = reading(file, text, environ, **flags)
    assert found.faults == ()
    assert found.configuration is not None
    return found.configuration


def refused(file: Path, text: str, environ: Mapping[str, str] = NOTHING, **flags: object) -> str:
    """The one thing that is wrong, without the name of the file."""
    (fault,) = reading(file, text, environ, **flags).faults
    return str(fault).removeprefix(f"{file}:")


def test_without_a_word_an_agent_observes_and_is_reached_from_nowhere_else() -> None:
    configuration = load_configuration(None, {}, {})
    assert configuration == AgentConfiguration()
    assert configuration.mode == "observe"
    assert configuration.listen.startswith("127.0.0.1:")


def test_a_file_says_it_in_camel_case(file: Path) -> None:
    configuration = taken(
        file,
        """\
release: "1.37"
gates: {MemoryQoS: true}
policy: TieredReservation
factor: 1
mode: enforce
select: {namespaces: [shop], labels: "tier in (web, db)"}
canary: {notNamespaces: [bank]}
pods: {files: [/pods]}
resync: 1m30s
minShare: 0.5
ramp: {step: 0.25, interval: 500ms}
kepMetrics: true
""",
    )
    assert configuration == AgentConfiguration(
        release="1.37",
        gates={"MemoryQoS": True},
        policy="TieredReservation",
        factor=1.0,
        mode="enforce",
        select=Selector(namespaces=("shop",), labels="tier in (web, db)"),
        canary=Selector(not_namespaces=("bank",)),
        pods=PodSourceConfig(files=("/pods",)),
        resync=90.0,
        min_share=0.5,
        ramp=RampConfig(step=0.25, interval=0.5),
        kep_metrics=True,
    )


@pytest.mark.parametrize("word", ["off", "'off'", "Off", "false"])
def test_numa_is_off_however_yaml_reads_the_word(file: Path, word: str) -> None:
    assert taken(file, f"numa: {word}\n").numa == "off"


def test_null_is_not_set(file: Path) -> None:
    text = "mode: null\nselect: null\ncanary: ~\ngates:\npods: {kubelet: null, files: null}\n"
    assert taken(file, text) == AgentConfiguration()


def test_the_environment_wins_over_the_file_and_flags_win_over_both(file: Path) -> None:
    text = "mode: enforce\nresync: 1m\nlogFormat: text\nselect: {namespaces: [a]}\n"
    environ = {"MEMQOS_RESYNC": "2m", "MEMQOS_LOG_FORMAT": "json", "MEMQOS_SELECT_LABELS": "b"}
    configuration = taken(file, text, environ, resync="3m", select__namespaces="c, d")
    assert configuration.mode == "enforce"
    assert configuration.log_format == "json"
    assert configuration.resync == 180.0
    assert configuration.select == Selector(namespaces=("c", "d"), labels="b")


def test_gates_are_set_one_by_one(file: Path) -> None:
    text = "gates: {MemoryQoS: true, InPlacePodVerticalScaling: true}\n"
    environ = {"MEMQOS_GATES": "MemoryQoS=false,PodLevelResources=True"}
    configuration = taken(file, text, environ, gates=("PodLevelResources=false",))
    assert configuration.gates == {
        "MemoryQoS": False,
        "InPlacePodVerticalScaling": True,
        "PodLevelResources": False,
    }


@pytest.mark.parametrize("field", CONFIG_FIELDS.values(), ids=lambda field: field.variable)
def test_every_field_can_be_set_in_the_environment_and_by_a_flag(field: ConfigField) -> None:
    texts = ["enforce", "json", "None", "1.37", "1", "2s", "true", "MemoryQoS=true", "[::1]:1", "a"]
    by_variable = [read_agent_configuration(None, {field.variable: text}, {}) for text in texts]
    by_flag = [read_agent_configuration(None, {}, {".".join(field.path): text}) for text in texts]
    for readings in (by_variable, by_flag):
        faults = [fault for reading in readings for fault in reading.faults]
        assert any(reading.configuration != AgentConfiguration() for reading in readings)
        assert {fault.field for fault in faults} <= {field.variable, field.flag}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("polcy: None\n", "3:8: polcy: there is no such field here – did you mean policy?"),
        ("Mode: observe\n", "3:7: Mode: there is no such field here – did you mean mode?"),
        ("zzz: 1\n", "3:6: zzz: there is no such field here – see memqos config schema"),
        (
            "ramp: {setp: 1}\n",
            "3:14: ramp.setp: there is no such field in ramp – did you mean step?",
        ),
        (
            "fight: {q: 1}\n",
            "3:12: fight.q: there is no such field in fight – there are times, minutes, grace",
        ),
        ("factor: 0\n", "3:9: factor: 0 is not a factor above 0 and up to 1"),
        ("factor: 1.01\n", "3:9: factor: 1.01 is not a factor above 0 and up to 1"),
        ("factor: -0.5\n", "3:9: factor: -0.5 is not a factor above 0 and up to 1"),
        ("factor: true\n", "3:9: factor: true is not a factor above 0 and up to 1"),
        ("factor: '0.9'\n", "3:9: factor: '0.9' is not a factor above 0 and up to 1"),
        ("mode: enfroce\n", "3:7: mode: 'enfroce' is not observe or enforce"),
        ("mode: {}\n", "3:1: mode: a mapping is not observe or enforce"),
        ("policy: none\n", "is not None or TieredReservation or HardReservation"),
        ("release: 1.30\n", "3:10: release: 1.3 is not a string – put it in quotes"),
        ("release: '1.99'\n", "3:10: release: Kubernetes 1.99 is newer than any release"),
        (
            "release: '1.30'\npolicy: None\n",
            "4:9: policy: Kubernetes 1.30 has no memoryReservationPolicy",
        ),
        ("gates: {MemoryQos: true}\n", "3:20: gates.MemoryQos: no Kubernetes release has"),
        ("gates: {MemoryQoS: 1}\n", "3:20: gates.MemoryQoS: 1 is not true or false"),
        ("gates: [MemoryQoS]\n", "3:1: gates: expected a mapping"),
        ("select: shop\n", "3:9: select: expected a mapping"),
        ("select: {namespaces: shop}\n", "select.namespaces: 'shop' is not a list – write [shop]"),
        ("select: {namespaces: [a, B_c]}\n", "3:26: select.namespaces[1]: 'B_c' is not the name"),
        ('select: {namespaces: ["a\\n"]}\n', "is not the name of a namespace"),
        ("select: {labels: 'a in'}\n", "select.labels: 'a in' is not a label selector"),
        (
            "select: {namespaces: [a, b], notNamespaces: [b]}\n",
            "select.notNamespaces: b is both included and excluded – keep one of the two",
        ),
        ("canary: {labels: a}\n", "canary.labels: nothing is written in mode observe – set mode"),
        ("mode: observe\ncanary: {labels: a}\n", "4:18: canary.labels: nothing is written"),
        ("mode: enforce\ncanary: {labels: ''}\n", "4:18: canary.labels: picks every pod"),
        ("mode: enforce\ncanary: {}\n", "4:1: canary: picks every pod"),
        (
            "ramp: {disabled: true, step: 0.5}\n",
            "ramp.step: has no effect while the ramp is disabled",
        ),
        (
            "memoryManagerState: /s\n",
            "memoryManagerState: has no effect while numa is off – set numa: state or allocate",
        ),
        ("numa: 'off'\nmemoryManagerState: /s\n", "4:21: memoryManagerState: has no effect"),
        ("numa: true\n", "numa: true is not off or state or allocate"),
        ("ramp: {step: 0}\n", "ramp.step: 0 is not a share above 0 and up to 1"),
        ("ramp: {interval: 0s}\n", "ramp.interval: '0s' is not a duration above 0"),
        ("resync: 60\n", "60 is not a duration of a second or more – write a number with a unit"),
        ("resync: 999ms\n", "'999ms' is not a duration of a second or more"),
        ("resync: -60s\n", "'-60s' is not a duration of a second or more"),
        ("jitter: 1\n", "1 is not a share from 0 to below 1"),
        ("fight: {times: 0}\n", "fight.times: 0 is not a whole number from 1 on"),
        ("fight: {times: 2.5}\n", "fight.times: 2.5 is not a whole number from 1 on"),
        ("fight: {minutes: 0}\n", "fight.minutes: 0 is not a number of minutes above 0"),
        ("fight: {grace: -1s}\n", "fight.grace: '-1s' is not a duration from 0s on"),
        ("pods: {files: []}\n", "pods.files: no pods would be known"),
        ("pods: {files: [a], kubelet: https://n}\n", "pods come from files or from the kubelet"),
        ("pods: {kubelet: ftp://n}\n", "pods.kubelet:"),
        ("pods: {source: api}\n", "pods.source: 'api' is not"),
        ("pods: {socket: /s}\n", "pods.socket: is for the PodsAPI, which is not the source"),
        (f"pods: {{source: auto, socket: /{'x' * 107}}}\n", "pods.socket: longer than 107 bytes"),
        ("pods: {source: kubelet}\n", "pods.source: the kubelet's address is missing – give it in"),
        ("pods: {source: auto, files: [a]}\n", "files: has no effect while pods.source is auto"),
        ("pods: {source: podsapi, kubelet: https://n}\n", "pods.kubelet: has no effect while"),
        ("pods: {source: files, cluster: true}\n", "pods.cluster: has no effect while"),
        ("pods: {source: cluster, socket: /s}\n", "pods.socket: has no effect while"),
        ("pods: {source: files, files: []}\n", "pods.files: no pods would be known"),
        ("pods: {source: podsapi, nodeName: node-1}\n", "pods.nodeName: needs a cluster"),
        (
            "pods: {source: auto, tokenFile: /t}\n",
            "tokenFile: needs a kubelet as the source of pods",
        ),
        ("pods: {tokenFile: /t}\n", "pods.tokenFile: needs a kubelet as the source of pods"),
        ("pods: {kubelet: https://n, clientKey: /k}\n", "clientKey: a key without its certificate"),
        (
            "pods: {kubelet: http://n, tokenFile: /t}\n",
            "the token would be sent to http://n:10255 without TLS",
        ),
        ("listen: ':9177'\n", "3:9: listen: ':9177' names no address – write 127.0.0.1:9177"),
        ("listen: node1:9177\n", "'node1' is not an IP address – only localhost"),
        ("journal: ''\n", "3:10: journal: '' is not a path"),
        (f"stateSocket: /{'x' * 107}\n", "stateSocket: longer than 107 bytes"),
        ("kepMetrics: yes please\n", "'yes please' is not true or false"),
        ("mode: observe\nmode: enforce\n", "already given in line 3"),
        ("---\nkind: Pod\n", "4:1: a second document – one file is one configuration"),
    ],
)
def test_what_is_wrong_is_said_where_it_stands(file: Path, text: str, complaint: str) -> None:
    assert complaint in refused(file, text)


def test_all_that_is_wrong_is_said_at_once_and_in_order(file: Path) -> None:
    found = reading(file, "zz: 1\nfactor: 2\nlisten: x\n", {"MEMQOS_MODE": "x"}, resync="x")
    assert [fault.line for fault in found.faults] == [3, 4, 5, None, None]
    with pytest.raises(InputError, match=r"zz: there is no such field here \(and 4 more"):
        load_configuration(str(file), {"MEMQOS_MODE": "x"}, {"resync": "x"})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "kind: AgentConfiguration\n",
            "apiVersion: required, but missing – write apiVersion: memqos",
        ),
        (
            "apiVersion: memqos.io/v1\nkind: AgentConfiguration\n",
            "1:13: apiVersion: expected memqos",
        ),
        ("apiVersion: memqos.io/v1alpha1\n", "kind: required, but missing"),
        ("apiVersion: memqos.io/v1alpha1\nkind: Pod\nspec: {}\n", "2:7: kind: expected AgentConf"),
        ("", "no document"),
        ("- a\n", "the document is a list"),
        ("a: [\n", "1:"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(file: Path, text: str, complaint: str) -> None:
    file.write_text(text)
    assert complaint in str(read_agent_configuration(str(file), {}, {}).faults[0])


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="check the path"):
        load_configuration(str(tmp_path / "none.yaml"), {}, {})


@pytest.mark.parametrize(
    ("environ", "complaint"),
    [
        ({"MEMQOS_MOED": "x"}, "environment: MEMQOS_MOED: there is no such setting – did you mean"),
        ({"MEMQOS_FACTOR": "2"}, "environment: MEMQOS_FACTOR: 2.0 is not a factor above 0"),
        ({"MEMQOS_FACTOR": "nan"}, "MEMQOS_FACTOR: 'nan' is not a factor above 0"),
        ({"MEMQOS_FACTOR": ""}, "MEMQOS_FACTOR: '' is not a factor above 0"),
        ({"MEMQOS_KEP_METRICS": "on"}, "MEMQOS_KEP_METRICS: 'on' is not true or false"),
        ({"MEMQOS_FIGHT_TIMES": "1.5"}, "MEMQOS_FIGHT_TIMES: '1.5' is not a whole number"),
        ({"MEMQOS_GATES": "MemoryQoS"}, "'MemoryQoS' is not NAME=true or NAME=false"),
        ({"MEMQOS_PODS_FILES": ""}, "MEMQOS_PODS_FILES: no pods would be known"),
    ],
)
def test_what_is_wrong_in_the_environment_is_said_by_name(
    environ: dict[str, str], complaint: str
) -> None:
    (fault,) = read_agent_configuration(None, environ, {}).faults
    assert complaint in str(fault)


def test_what_is_wrong_with_a_flag_is_said_by_its_name() -> None:
    (fault,) = read_agent_configuration(None, {}, {"pods.kubelet": "x://", "mode": None}).faults
    assert str(fault).startswith("--pods: ")
    (fault,) = read_agent_configuration(None, {}, {"select.notNamespaces": "A"}).faults
    assert str(fault).startswith("--select-not-namespaces: 'A' is not")


@pytest.mark.parametrize(
    "name",
    [
        "MEMQOS_SERVICE_HOST",
        "MEMQOS_SERVICE_PORT",
        "MEMQOS_SERVICE_PORT_METRICS",
        "MEMQOS_PORT",
        "MEMQOS_PORT_9177_TCP",
        "MEMQOS_PORT_9177_TCP_ADDR",
        "MEMQOS_AGENT_SERVICE_HOST",
        "MEMQOS_CONFIG",
        "MEMQOSX",
        "OTHER",
    ],
)
def test_variables_that_kubernetes_sets_for_services_are_skipped(name: str) -> None:
    assert read_agent_configuration(None, {name: "x"}, {}).configuration == AgentConfiguration()


def test_a_later_source_may_overrule_an_earlier_one(file: Path) -> None:
    canary = "mode: enforce\ncanary: {labels: a}\n"
    assert taken(file, canary, {"MEMQOS_MODE": "observe"}).mode == "observe"
    assert taken(file, "ramp: {step: 0.5}\n", ramp__disabled=True).ramp == RampConfig(0.5, off=True)
    state = "numa: state\nmemoryManagerState: /s\n"
    assert taken(file, state, numa="off").memory_manager_state == "/s"
    asked = "pods: {kubelet: https://n, tokenFile: /t}\n"
    assert taken(file, asked, pods__files=("/a,b",)).pods == PodSourceConfig(files=("/a,b",))
    from_kubelet = taken(file, "pods: {files: [/a]}\n", {"MEMQOS_PODS_KUBELET": "https://n"})
    assert from_kubelet.pods == PodSourceConfig(files=(), kubelet="https://n")
    assert "canary.labels" not in str(reading(file, canary).faults)


@pytest.mark.parametrize(
    ("text", "pods"),
    [
        ("", PodSourceConfig()),
        ("pods: {cluster: true}\n", PodSourceConfig(files=(), cluster=True)),
        ("pods: {source: files}\n", PodSourceConfig(source="files")),
        ("pods: {source: cluster}\n", PodSourceConfig(source="cluster", files=(), cluster=True)),
        ("pods: {source: podsapi}\n", PodSourceConfig(source="podsapi", files=())),
        (
            "pods: {source: auto, kubelet: https://n, tokenFile: /t, socket: /s, nodeName: n-1}\n",
            PodSourceConfig(
                source="auto",
                files=(),
                kubelet="https://n",
                token_file="/t",
                socket="/s",
                node_name="n-1",
            ),
        ),
    ],
)
def test_pods_have_one_source(file: Path, text: str, pods: PodSourceConfig) -> None:
    assert taken(file, text).pods == pods


def test_a_later_source_of_pods_takes_the_place_of_a_named_one(file: Path) -> None:
    auto = "pods: {source: auto, kubelet: https://n, socket: /s}\n"
    assert taken(file, auto, pods__files=("/a",)).pods == PodSourceConfig(files=("/a",))
    assert taken(file, auto, pods__cluster=True).pods == PodSourceConfig(files=(), cluster=True)
    assert taken(file, auto, pods__source="podsapi").pods == PodSourceConfig(
        source="podsapi", files=(), socket="/s"
    )
    named = taken(file, "pods: {cluster: true}\n", {"MEMQOS_PODS_SOURCE": "podsapi"}).pods
    assert named == PodSourceConfig(source="podsapi", files=())
    assert named.origin == "podsapi"


def test_an_earlier_source_does_not_make_a_later_one_idle(file: Path) -> None:
    assert "MEMQOS_CANARY_LABELS: nothing is written in mode observe" in refused(
        file, "mode: observe\n", {"MEMQOS_CANARY_LABELS": "a"}
    )


def test_what_is_in_force_could_stand_in_a_file(file: Path) -> None:
    import yaml

    for text in (
        "",
        "pods: {source: auto}\n",
        "mode: enforce\ncanary: {labels: a}\npods: {kubelet: https://n}\n",
    ):
        configuration = taken(file, text)
        file.write_text(yaml.safe_dump(configuration_data(configuration)))
        assert load_configuration(str(file), {}, {}) == configuration


def test_a_selector_picks_by_namespace_and_label() -> None:
    selector = Selector(namespaces=("shop", "default"), not_namespaces=("bank",), labels="!batch")
    assert selector.picks(Pod(ObjectMeta(namespace="shop")))
    assert selector.picks(Pod())
    assert not selector.picks(Pod(ObjectMeta(namespace="bank")))
    assert not selector.picks(Pod(ObjectMeta(labels={"batch": "yes"})))
    assert Selector().picks(Pod(ObjectMeta(namespace="anything")))
