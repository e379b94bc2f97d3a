"""Which part of the grader may import what: the arrows that the trust rules ask for."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

GRADING = Path(__file__).parents[2] / "grading"


def imports_of(path: Path) -> set[str]:
    """Return every module that a file imports, also inside functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def own_modules(folder: str) -> dict[str, set[str]]:
    """Return the modules of the grading app that each file of a folder imports."""
    return {
        path.name: {name for name in imports_of(path) if name.split(".")[0] == "grading"}
        for path in sorted((GRADING / folder).glob("*.py"))
    }


def test_the_worker_imports_nothing_of_the_app_but_itself() -> None:
    for file, names in own_modules("worker").items():
        assert {name for name in names if not name.startswith("grading.worker")} == set(), file
    outside = {name.split(".")[0] for path in (GRADING / "worker").glob("*.py") for name in imports_of(path)}
    assert outside - set(sys.stdlib_module_names) == {"grading", "torch"}


def test_the_oracle_knows_neither_warden_nor_verdict() -> None:
    for file, names in own_modules("oracle").items():
        assert {name for name in names if not name.startswith(("grading.oracle", "grading.worker"))} == set(), file


@pytest.mark.parametrize("name", ["jail", "kernel", "seccomp"])
def test_the_jail_needs_the_standard_library_only(name: str) -> None:
    names = imports_of(GRADING / "warden" / f"{name}.py")
    assert {n for n in names if n.split(".")[0] not in sys.stdlib_module_names} <= {"grading.warden"}


def test_neither_warden_nor_verdict_loads_torch() -> None:
    modules = "grading.warden.grade, grading.warden.archiveout, grading.verdict, grading.warden.hostprobe"
    line = f"import sys; import {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", line], cwd=GRADING.parent, check=False).returncode == 0


def test_nothing_here_unpickles() -> None:
    for folder in ("worker", "oracle", "warden"):
        for path in (GRADING / folder).glob("*.py"):
            assert not {"pickle", "marshal", "shelve", "multiprocessing"} & imports_of(path)
            assert "torch.load" not in path.read_text()
