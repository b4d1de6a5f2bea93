import ast
import subprocess
import sys
from pathlib import Path

import memqos

PUBLIC = """
    Capacity Cgroup Claim FieldError InputError JournalError KubeletConfiguration MemqosError
    Node NodeFacts NodeSettings Planner Pod PodPlan Protection Quantity Reason Release Semantics
    Setting Settings SettingsOptions Shape Tree Unreachable UnsupportedRelease WriteRefused
    allocatable apply_defaults cgroup_names effective kubelet_from plan_node qos_class
    read_kubelet resolve semantics validate
""".split()  # noqa: SIM905


def test_the_public_names_are_these_and_no_others() -> None:
    assert sorted(PUBLIC) == memqos.__all__
    for name in PUBLIC:
        assert getattr(memqos, name).__name__ == name


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
