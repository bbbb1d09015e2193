"""Results in words: Markdown tables, the standard deviation over seeds, and a mean with it."""

import statistics
from collections.abc import Iterable, Sequence


def markdown_table(head: Sequence[object], rows: Iterable[Sequence[object]], numbers: Iterable[int] = ()) -> str:
    """A table without a line end after it; the columns with these numbers are set to the right."""
    right = set(numbers)
    rule = ["---:" if index in right else "---" for index in range(len(head))]
    return "\n".join(map(_line, (head, rule, *rows)))


def _line(cells: Sequence[object]) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def deviation(values: Iterable[float]) -> float | None:
    """The sample standard deviation, None of fewer than two values."""
    found = list(values)
    return statistics.stdev(found) if len(found) > 1 else None


def plus_minus(mean: float, spread: float | None, digits: int = 2, unit: str = "", sign: str = "") -> str:
    """96.18 ± 0.24 %: the mean alone where there is no spread; "%" and "points" take fractions."""
    scale = 100 if unit in ("%", "points") else 1
    tail = "" if spread is None else f" ± {scale * spread:.{digits}f}"
    return f"{scale * mean:{sign}.{digits}f}{tail}{unit and ' '}{unit}"
