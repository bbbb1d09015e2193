"""Imports point one way: the table below is every edge between packages and subpackages, and a new one fails.

A module directly in a package (``ledger.py``) counts as a subpackage of its own name. Imports inside functions count too;
those for type checkers only do not.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src"

LIBRARY = {
    "ops": set(),
    "schedule": set(),
    "version": set(),
    "wiring": {"ops"},
    "nn": {"ops", "schedule", "wiring"},
    "optim": {"ops", "wiring"},
    "methods": {"nn", "ops", "optim", "schedule", "wiring"},
    "distributed": {"methods", "nn", "ops", "version", "wiring"},
    "ledger": {"methods", "nn", "ops"},
    "engine": {"methods", "nn", "ops", "optim", "schedule", "wiring"},
    "checkpoint": {"methods", "nn", "ops", "version", "wiring"},
    "export": {"checkpoint", "ledger", "methods", "nn", "ops", "version", "wiring"},
    "integrations": {"methods", "nn"},
    "posterior": {"checkpoint", "nn"},
    "sklearn": {"engine", "export", "methods", "nn", "ops", "optim", "wiring"},
}
# Who uses the library may use all of it; the report knows run folders and nothing else.
PROGRAM = {
    "tables": set(),
    "report": {"tables"},
    "circuit": {"report", "run", "tasks"},
    "data": set(),
    "gpt": set(),
    "theory": set(),
    "bench": {"data", "gpt", "report", "run", "tables", "tasks"},
    "run": {"data", "tables", "tasks"},
    "tasks": {"data", "gpt", "run"},
    "device": {"run", "tasks"},
    "sweep": {"run", "tables"},
    "paper": {"data", "report", "run", "tables", "tasks", "theory"},
    "cli": {"bench", "circuit", "data", "device", "paper", "report", "run", "sweep", "tables", "tasks"},
}
WITHOUT_TORCH = ("report", "tables")


def _imported(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        yield from _imported(node)


def _targets(file: Path) -> Iterator[str]:
    """Dotted names of what a file imports; relative imports written out."""
    package = ".".join(file.relative_to(SOURCE).parent.parts)
    for node in _imported(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
            continue
        base = node.module or ""
        if node.level:
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*above, base] if base else above)
        yield from (f"{base}.{name.name}" for name in node.names)


def _edges(package: str) -> dict[str, set[str]]:
    """Subpackage → what it imports: subpackages of its own package, or the name of the other package."""
    modules = {path.stem if path.is_file() else path.name for path in (SOURCE / package).iterdir()}
    edges: dict[str, set[str]] = {}
    for file in (SOURCE / package).rglob("*.py"):
        parts = file.relative_to(SOURCE / package).parts
        mine = Path(parts[0]).stem
        if mine in ("__init__", "__main__"):  # the names that are public, and the door from `python -m` to the program
            continue
        found = edges.setdefault(mine, set())
        for target in _targets(file):
            top, _, rest = target.partition(".")
            first = rest.split(".")[0]
            if top == package:
                found.add(first if first in modules else "__init__")
            elif top in ("wirebound", "wirebound_lab", "torch"):
                found.add(top)
    return {mine: found - {mine} for mine, found in edges.items()}


def test_the_library_never_imports_the_program():
    assert [mine for mine, found in _edges("wirebound").items() if "wirebound_lab" in found] == []


@pytest.mark.parametrize(("package", "allowed"), [("wirebound", LIBRARY), ("wirebound_lab", PROGRAM)])
def test_every_edge_is_in_the_table(package, allowed):
    found = {mine: edges - {"torch", "wirebound"} for mine, edges in _edges(package).items()}
    assert set(found) == set(allowed), "a subpackage is missing in the table above, or gone"
    new = {mine: sorted(edges - allowed[mine]) for mine, edges in found.items() if edges - allowed[mine]}
    assert new == {}, "new edges: if they point the right way, add them to the table"


def test_library_edges_have_no_cycle():
    done: set[str] = set()
    while len(done) < len(LIBRARY):
        ready = {mine for mine, edges in LIBRARY.items() if mine not in done and edges <= done}
        assert ready, f"a cycle among {sorted(set(LIBRARY) - done)}"
        done |= ready


def test_the_report_needs_neither_torch_nor_the_library():
    edges = _edges("wirebound_lab")
    assert all(not {"torch", "wirebound"} & edges[mine] for mine in WITHOUT_TORCH)


@pytest.mark.parametrize("command", [["--help"], ["--version"], ["report", "--help"], ["circuit", "--help"]])
def test_commands_that_need_no_torch_do_not_import_it(command):
    code = (
        "import sys; from wirebound_lab.cli import main\n"
        f"try: main({command!r})\n"
        "except SystemExit: pass\n"
        "assert 'torch' not in sys.modules, 'torch was imported'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)


def test_the_library_imports_its_three_dependencies_alone():
    """In a process in which everything else of the site is out of reach."""
    code = (
        "import sys, torch, numpy, safetensors.torch\n"
        "before = set(sys.modules)\n"
        "import wirebound\n"
        "tops = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "foreign = {t for t in tops if t not in sys.stdlib_module_names} - {'wirebound', 'torch', 'numpy', 'safetensors'}\n"
        "assert not foreign, foreign"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
