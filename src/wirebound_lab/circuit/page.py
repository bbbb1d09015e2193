"""A page to walk through a network: the connections in compact arrays, the drawing in the browser's hands.

Of each matrix the page has where its columns begin (uint32), rows (uint16, or uint32 where they need it) and weights
(float32), in base64: 8 letters a connection, so that a million of them are a page of 9 MB.
"""

import base64
from collections.abc import Collection, Mapping
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wirebound_lab.circuit.graph import Graph, Group, Part, read_graph
from wirebound_lab.circuit.stored import MODEL, Matrix, read_matrices, strongest
from wirebound_lab.report import ReportError, Run, read_run
from wirebound_lab.report.markup import Html, data_block, fragment, table, tag
from wirebound_lab.report.page import check_place, write_page
from wirebound_lab.report.wording import count, percent, share

MOST = 1_000_000  # connections on a page
_SMALL = 1 << 16  # rows that fit into two bytes

Circuit = Mapping[str, Any]  # circuit.json: "connections", their numbers, and what was measured


def write_circuit_page(folder: Path, out: Path, most: int = MOST, circuit: Circuit | None = None) -> Path:
    """Write one self-contained HTML page about the network of a finished run."""
    check_place(out)
    return write_page(render(read_run(folder), most, circuit), out)


def render(run: Run, most: int = MOST, circuit: Circuit | None = None) -> str:
    """The whole page as text; the same folder gives the same bytes."""
    if most < 1:
        raise ReportError(f"most (={most}) must be >= 1")
    whole = read_matrices(run.folder / MODEL)
    total = sum(len(matrix.weights) for matrix in whole)
    shape = run.records.pictures[-1].shape if run.records.pictures else ()
    graph = read_graph(strongest(whole, most), run.config, {**run.summary, "input_shape": list(shape)})
    marked = frozenset(map(int, circuit["connections"])) if circuit else frozenset[int]()
    _check_marked(marked, whole)
    data = {
        "kind": graph.kind,
        "groups": [_group(group) for group in graph.groups],
        "parts": [_part(part, marked) for part in graph.parts],
    }
    shown = sum(len(part.matrix.weights) for part in graph.parts)
    here = files(__package__)
    view = Html(here.joinpath("view.html").read_text(encoding="utf-8"))
    content = fragment(
        _heading(run, total, shown), _findings(circuit) if circuit else None, view, _matrices(graph, whole), data_block(data, "graph"),
    )  # fmt: skip
    report = files("wirebound_lab.report")
    style = report.joinpath("style.css").read_text(encoding="utf-8") + here.joinpath("circuit.css").read_text(encoding="utf-8")
    names = ("graph.js", "draw.js", "walk.js")
    script = "\n".join(here.joinpath(name).read_text(encoding="utf-8") for name in names)
    texts = {"title": fragment(f"Circuits of {run.name}"), "heading": "Circuits", "content": content}
    page = report.joinpath("page.html").read_text(encoding="utf-8")
    return Template(page).substitute({**texts, "style": style, "script": script})


def _check_marked(marked: Collection[int], matrices: list[Matrix]) -> None:
    known = sum(int((matrix.numbers >= 0).sum()) for matrix in matrices)
    if any(not 0 <= number < known for number in marked):
        raise ReportError(f"the connections of a circuit must be numbers below K (={known}): it is of another network")


def _heading(run: Run, total: int, shown: int) -> Html:
    facts = [f"{count(total)} connections"]
    if run.possible:
        facts.append(f"{share(total / run.possible)} of {count(run.possible)} possible")
    if run.accuracy is not None:
        facts.append(f"{run.part} accuracy {percent(run.accuracy)}")
    left_out = (
        f"The page holds {count(shown)} of {count(total)} connections: of each node the strongest. Weaker ones are left out."
        if shown < total else None
    )  # fmt: skip
    return tag(
        "section",
        tag("h2", f"{run.heading} ({run.name})"),
        tag("p", " · ".join(facts), class_="hint"),
        tag("p", left_out, class_="note", id="left-out") if left_out else None,
        class_="panel",
    )


def _findings(circuit: Circuit) -> Html:
    """What ablation said about the circuit."""
    names = {
        "whole": "the whole network",
        "kept": "the circuit alone, all other connections at zero",
        "zeroed": "the circuit at zero, all others as they are",
        "others": f"as many others at zero, at random (mean of {circuit.get('draws', 'several')} draws)",
        "chance": "a constant answer",
    }
    rows = [[words, percent(circuit[name])] for name, words in names.items() if circuit.get(name) is not None]
    size, budget = len(circuit["connections"]), circuit.get("budget")
    said = f"{count(size)} of {count(budget)} connections do this: {circuit.get('question', 'the task')}"
    return tag("section", tag("h2", "The circuit"), tag("p", said, class_="hint"), table("Ablations", ["what is there", "accuracy"], rows), class_="panel")


def _matrices(graph: Graph, whole: list[Matrix]) -> Html:
    rows = [
        [m.name, f"{count(m.n_in)} → {count(m.n_out)}", count(len(m.weights)), share(len(m.weights) / max(1, m.n_in * m.n_out))]
        for m in whole
    ]  # fmt: skip
    inner = table("Matrices", ["matrix", "inputs → outputs", "connections", "connectivity"], rows)
    return tag("details", tag("summary", "All matrices"), inner, class_="panel matrices")


def _group(group: Group) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": group.kind, "title": group.title, "first": group.first, "size": group.size}
    others = {"names": group.names, "head": group.head_size, "members": group.members}
    return found | {name: value for name, value in others.items() if value}


def _part(part: Part, marked: Collection[int]) -> dict[str, Any]:
    matrix = part.matrix
    starts = np.searchsorted(matrix.columns, np.arange(matrix.n_in + 1))
    found: dict[str, Any] = {
        "name": matrix.name, "source": part.source, "target": part.target, "time": part.time,
        "starts": _packed(starts, "<u4"), "weights": _packed(matrix.weights, "<f4"),
        "rows": _packed(matrix.rows, "<u2" if matrix.n_out <= _SMALL else "<u4"), "wide": matrix.n_out > _SMALL,
    }  # fmt: skip
    inside = [place for place, number in enumerate(matrix.numbers.tolist()) if number in marked] if marked else []
    return found | ({"circuit": inside} if inside else {})


def _packed(array: NDArray[Any], dtype: str) -> str:
    return base64.b64encode(array.astype(dtype).tobytes()).decode("ascii")
