"""One run on the page: headline, charts, picture of the inputs, tables, settings."""

from collections.abc import Sequence
from itertools import pairwise

from . import run_charts
from .markup import Child, Html, fragment, settings, table, tag, tag_if
from .records import mapping
from .runs import Paper, Run, RunLayer
from .wiring_view import draw_wiring, survivors_chart
from .wording import MISSING, count, duration, joined, per_step, percent, plural, points, share, signed, size


def run_section(run: Run, identifier: str, is_open: bool) -> Html:
    """A block that folds; folded, it still says what was run, how well, and whether the budget held."""
    who = tag("div", tag("h2", run.heading), tag("p", _line(run), class_="line"), class_="who")
    summary = tag("summary", who, tag("span", percent(_latest(run)[0]), class_="glance"), budget_badge(run))
    return tag("details", summary, _body(run, identifier), id=identifier, class_="run", open=is_open)


def budget_badge(run: Run, subject: str = "budget ") -> Html:
    """Whether the budget held: a word, a sign and a colour. Under its own heading it needs no subject."""
    if run.budget_kept is None:
        return tag("span", "no budget" if run.budget is None else f"{subject}not recorded", class_="badge")
    sign, class_ = ("✓ {}kept", "badge good") if run.budget_kept else ("✗ {}not kept", "badge bad")
    return tag("span", sign.format(subject), class_=class_)


def _body(run: Run, identifier: str) -> Html:
    notes = list(run.records.notes)
    if not run.finished:
        notes.insert(0, f"This run has no final {run.part} accuracy: it was interrupted or is still running.")
    accuracy = run_charts.accuracy_chart(run, f"{identifier}-accuracy")
    loss = run_charts.loss_chart(run, f"{identifier}-loss")
    rewiring = (
        run_charts.active_chart(run, f"{identifier}-active"),
        run_charts.layer_chart(run, f"{identifier}-layers"),
        *run_charts.turnover_charts(run, f"{identifier}-turnover"),
        survivors_chart(run.records.pictures, [layer.name for layer in run.layers], f"{identifier}-survivors"),
    )
    titled = {
        "The wiring as it changes": draw_wiring(run, f"{identifier}-map"),
        "Connections per layer": _layer_table(run.layers),
        "Memory": _ledger_table(run.ledger),
    }
    return tag(
        "div",
        *(tag("p", note, class_="note", role="note") for note in notes),
        tag("dl", *_facts(run), class_="facts"),
        tag("section", _paper_table(run, run.paper), class_="paper") if run.paper else None,
        tag("h3", "Training"),
        tag("div", accuracy, loss, class_="charts"),
        tag("h3", "Rewiring"),
        tag("div", *rewiring, class_="charts"),
        *(tag("section", tag("h3", title), content) for title, content in titled.items() if content is not None),
        _settings(run),
        class_="body",
    )


def _line(run: Run) -> str:
    connectivity = f"{share(run.connectivity)} connected" if run.connectivity is not None else None
    epochs = plural(run.epochs, "epoch") if run.epochs is not None else None
    return joined(connectivity, _network(run), epochs, f"seed {run.seed}" if run.seed is not None else None, run.name)


def _network(run: Run) -> str | None:
    """784-300-100-10, when the layers follow one another."""
    shapes = [layer.shape for layer in run.layers]
    if not shapes or any(len(shape) != 2 for shape in shapes):
        return None
    if any(before[0] != after[1] for before, after in pairwise(shapes)):
        return None
    return "-".join(str(side) for side in [shapes[0][1], *(shape[0] for shape in shapes)])


def _latest(run: Run) -> tuple[float | None, int | None]:
    """The final accuracy, or of an interrupted run the last one recorded with its epoch."""
    if run.accuracy is not None:
        return run.accuracy, None
    known = [(e.test_accuracy, e.epoch) for e in run.records.epochs if e.test_accuracy is not None]
    return known[-1] if known else (None, None)


def _facts(run: Run) -> list[Html]:
    accuracy, epoch = _latest(run)
    detail = "last epoch" if epoch is None else f"after epoch {epoch}, not finished"
    if accuracy is None:
        detail = "not recorded"
    elif run.paper and run.paper.accuracy is not None:
        detail += f"; paper {percent(run.paper.accuracy, 1)} ({points(accuracy - run.paper.accuracy)})"
    seen, path = run.active_range, run.summary.get("path")
    used = run.budget if run.budget is not None else seen[1] if seen else None
    possible = f"{count(used)} of {count(run.possible)} possible connections" if run.possible is not None else MISSING
    # The promise of the library: active connections = budget at every step.
    active = "active connections were not recorded"
    if seen:
        active = f"fewest {count(seen[0])}, most {count(seen[1])} active"
    kept, class_ = MISSING, ""
    if run.budget is None:
        kept, active = "No budget", f"this method promises none; {active}"
    elif run.budget_kept is not None:
        kept, class_ = ("Yes", "good") if run.budget_kept else ("No", "bad")
        active = f"budget {count(run.budget)}; {active}"
    times = [plural(run.steps, "step") if run.steps is not None else None, per_step(run.seconds, run.steps)]
    times.append(f"{path} path" if isinstance(path, str) and path else None)
    time = ", ".join(words for words in times if words) or MISSING
    return [
        _fact(f"{run.part.capitalize()} accuracy", percent(accuracy), detail, "lead"),
        _fact("Connectivity", share(run.connectivity), possible),
        _fact("Active = budget, every step", kept, active, class_),
        _fact("Training time", duration(run.seconds), time),
    ]


def _fact(name: str, value: str, detail: Child, class_: str = "") -> Html:
    words = tag("dt", name), tag("dd", value, class_="value"), tag("dd", detail, class_="detail")
    return tag("div", *words, class_=f"fact {class_}".strip())


def _settings(run: Run) -> Html:
    shown = {"layers", "ledger", "paper", "versions", "title", *run.config}
    body = fragment(
        settings("config.json", run.config),
        settings("Results (summary.json)", {key: value for key, value in run.summary.items() if key not in shown}),
        settings("Versions", mapping(run.summary.get("versions"))),
        tag("p", "Run folder: ", tag("code", run.name), class_="hint"),
    )
    return tag("details", tag("summary", "All settings"), body, class_="more")


def _layer_table(layers: Sequence[RunLayer]) -> Html | None:
    if not layers:
        return None

    def row(name: str, shape: str, possible: int | None, initial: int | None, final: int | None) -> list[Child]:
        connectivity = final / possible if final is not None and possible else None
        counts = [count(possible), count(initial), count(final), signed(_difference(final, initial))]
        return [name, shape, *counts, _with_bar(connectivity, share(connectivity))]

    rows = [row(layer.name, _shape(layer.shape), layer.possible, layer.initial, layer.final) for layer in layers]
    columns = zip(*((layer.possible, layer.initial, layer.final) for layer in layers), strict=True)
    foot = row("All layers", "", *map(_total, columns)) if len(layers) > 1 else []
    head = ["Layer", "In \u2192 out", "Possible", "At the start", "At the end", "Change", "Connectivity at the end"]
    return table("Connections per layer", head, rows, texts=(0, 1), foot=foot)


def _ledger_table(ledger: Sequence[tuple[str, int | None, str]]) -> Html | None:
    if not ledger:
        return None
    total = _total([held for _, held, _ in ledger])
    shares = [held / total if total and held is not None else None for _, held, _ in ledger]
    named = zip(ledger, shares, strict=True)
    rows = [[part, note, count(held), _with_bar(share, size(held))] for (part, held, note), share in named]
    foot = ["All parts", "", count(total), size(total)]
    return table("Memory ledger", ["Part", "What it is", "Bytes", "Size"], rows, texts=(0, 1), foot=foot)


def _paper_table(run: Run, paper: Paper) -> Html:
    gaps = (_difference(run.accuracy, paper.accuracy), _difference(run.connectivity, paper.connectivity))
    rows = [
        ["This run", percent(run.accuracy), share(run.connectivity)],
        ["Paper", percent(paper.accuracy), share(paper.connectivity)],
        ["Difference", *map(points, gaps)],
    ]
    return fragment(
        tag("h3", "Beside the paper"),
        tag_if("p", paper.claim, class_="hint"),
        tag("p", f"Source: {paper.source}", class_="hint") if paper.source else None,
        table("This run beside the paper's figure", ["", "Accuracy", "Connectivity"], rows),
    )


def _with_bar(fraction: float | None, words: str) -> Html:
    """A small bar, only for the eye: the number stands beside it."""
    bar = None
    if fraction is not None:
        width = 100 * min(1.0, max(0.0, fraction))
        bar = tag("span", tag("span", style=f"width:{width:.2f}%"), class_="bar", aria_hidden="true")
    return fragment(bar, tag("span", words, class_="beside-bar"))


def _shape(shape: Sequence[int]) -> str:
    """The file has [out, in, ...], as torch does; a reader follows the signal."""
    if len(shape) == 2:
        return f"{count(shape[1])} \u2192 {count(shape[0])}"
    return " \u00d7 ".join(map(count, shape)) if shape else MISSING


def _difference(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


def _total(values: Sequence[int | None]) -> int | None:
    present = [value for value in values if value is not None]
    return sum(present) if len(present) == len(values) else None
