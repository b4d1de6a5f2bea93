import ast
import subprocess
import sys
from pathlib import Path

import memqos

PUBLIC = """
    Capacity Cgroup Claim AuditSummary Explanation FieldError Finding InputError JournalError
    KubeletConfiguration LoadedPod MemqosError Node NodeFacts PlannedNode NodeSettings Planner Pod
    PodPlan Protection Quantity Reason Release Semantics Setting Settings SettingsOptions Shape
    Tree Unreachable UnsupportedRelease WriteRefused allocatable apply_defaults audit
    cgroup_names effective explain kubelet_from load plan plan_node qos_class read_kubelet
    resolve semantics validate
""".split()  # noqa: SIM905


def test_the_public_names_are_these_and_no_others() -> None:
    assert sorted([*PUBLIC, "__version__"]) == memqos.__all__
    for name in PUBLIC:
        # Packages of the same name can be called.
        assert getattr(memqos, name).__name__.removeprefix("memqos.") == name


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(str(memqos.__file__)).read_text())
    seen = {
        alias.asname
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname is not None
    }
    assert seen == set(PUBLIC)


def test_importing_memqos_imports_nothing_of_it() -> None:
    code = "import sys, memqos; print(*(m for m in sys.modules if m.startswith('memqos.')))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == ""


def test_the_docstring_example_holds() -> None:
    import doctest

    assert doctest.testmod(memqos) == (0, 5)
