"""docs/works-with.md: every row of its tables names a test that exists."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "works-with.md"
_TEST = re.compile(r"^`(tests/[\w/]+\.py)::(test_\w+)`$")


def _rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    return [row for row in rows if row[0] != "what" and not set(row[0]) <= {"-"}]


def test_the_tables_have_rows() -> None:
    assert len(_rows()) > 50


@pytest.mark.parametrize("row", _rows(), ids=lambda row: row[0][:40])
def test_each_row_names_a_test_that_exists(row: list[str]) -> None:
    assert len(row) == 3
    found = _TEST.match(row[2])
    assert found, f"{row[2]} is no test"
    tree = ast.parse((ROOT / found[1]).read_text(encoding="utf-8"))
    assert found[2] in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
