"""One run on the page: headline, charts, picture of the inputs, tables, settings."""

from __future__ import annotations

from itertools import pairwise

from . import run_charts
from .ages import survivors_chart
from .markup import Child, Html, fragment, tag
from .runs import Run
from .tables import layer_table, ledger_table, paper_table, settings
from .values import mapping
from .wiring_view import draw_wiring
from .wording import MISSING, count, duration, joined, per_step, percent, plural, points, share


def run_section(run: Run, identifier: str, is_open: bool) -> Html:
    """A block that folds; folded, it still says what was run, how well, and whether the budget held."""
    who = tag("div", tag("h2", run.heading), tag("p", _line(run), class_="line"), class_="who")
    summary = tag("summary", who, tag("span", percent(_latest(run)[0]), class_="glance"), budget_badge(run))
    return tag("details", summary, _body(run, identifier), id=identifier, class_="run", open=is_open)


def budget_badge(run: Run, subject: str = "budget ") -> Html:
    """Whether the budget held: a word, a sign and a colour. Under its own heading it needs no subject."""
    if run.budget_kept is None:
        return tag("span", "no budget" if run.budget is None else f"{subject}not recorded", class_="badge")
    if run.budget_kept:
        return tag("span", f"✓ {subject}kept", class_="badge good")
    return tag("span", f"✗ {subject}not kept", class_="badge bad")


def _body(run: Run, identifier: str) -> Html:
    notes = list(run.records.notes)
    if not run.finished:
        notes.insert(0, f"This run has no final {run.part} accuracy: it was interrupted or is still running.")
    training = (
        run_charts.accuracy_chart(run, f"{identifier}-accuracy"),
        run_charts.loss_chart(run, f"{identifier}-loss"),
    )
    rewiring = (
        run_charts.active_chart(run, f"{identifier}-active"),
        run_charts.layer_chart(run, f"{identifier}-layers"),
        *run_charts.turnover_charts(run, f"{identifier}-turnover"),
        survivors_chart(run.records.pictures, [layer.name for layer in run.layers], f"{identifier}-survivors"),
    )
    return tag(
        "div",
        *(tag("p", note, class_="note", role="note") for note in notes),
        tag("dl", _accuracy_fact(run), _connectivity_fact(run), _budget_fact(run), _time_fact(run), class_="facts"),
        tag("section", paper_table(run, run.paper), class_="paper") if run.paper else None,
        tag("h3", "Training"),
        tag("div", *training, class_="charts"),
        tag("h3", "Rewiring"),
        tag("div", *rewiring, class_="charts"),
        _titled("The wiring as it changes", draw_wiring(run, f"{identifier}-map")),
        _titled("Connections per layer", layer_table(run.layers)),
        _titled("Memory", ledger_table(run.ledger)),
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


def _fact(name: str, value: str, detail: Child, class_: str = "") -> Html:
    words = tag("dt", name), tag("dd", value, class_="value"), tag("dd", detail, class_="detail")
    return tag("div", *words, class_=f"fact {class_}".strip())


def _accuracy_fact(run: Run) -> Html:
    accuracy, epoch = _latest(run)
    detail = "last epoch" if epoch is None else f"after epoch {epoch}, not finished"
    if accuracy is None:
        detail = "not recorded"
    elif run.paper and run.paper.accuracy is not None:
        detail += f"; paper {percent(run.paper.accuracy, 1)} ({points(accuracy - run.paper.accuracy)})"
    return _fact(f"{run.part.capitalize()} accuracy", percent(accuracy), detail, "lead")


def _connectivity_fact(run: Run) -> Html:
    used = run.budget if run.budget is not None else (run.active_range[1] if run.active_range else None)
    detail = f"{count(used)} of {count(run.possible)} possible connections" if run.possible is not None else MISSING
    return _fact("Connectivity", share(run.connectivity), detail)


def _budget_fact(run: Run) -> Html:
    """The promise of the library, active connections = budget at every step, with fewest and most."""
    name, seen = "Active = budget, every step", run.active_range
    detail = "active connections were not recorded"
    if seen:
        detail = f"fewest {count(seen[0])}, most {count(seen[1])} active"
    if run.budget is None:
        return _fact(name, "No budget", f"this method promises none; {detail}")
    if run.budget_kept is None:
        return _fact(name, MISSING, detail)
    value, class_ = ("Yes", "good") if run.budget_kept else ("No", "bad")
    return _fact(name, value, f"budget {count(run.budget)}; {detail}", class_)


def _time_fact(run: Run) -> Html:
    path = run.summary.get("path")
    details = [plural(run.steps, "step") if run.steps is not None else None, per_step(run.seconds, run.steps)]
    details.append(f"{path} path" if isinstance(path, str) and path else None)
    return _fact("Training time", duration(run.seconds), ", ".join(detail for detail in details if detail) or MISSING)


def _settings(run: Run) -> Html:
    shown = {"layers", "ledger", "paper", "versions", "title", *run.config}
    body = fragment(
        settings("config.json", run.config),
        settings("Results (summary.json)", {key: value for key, value in run.summary.items() if key not in shown}),
        settings("Versions", mapping(run.summary.get("versions"))),
        tag("p", "Run folder: ", tag("code", run.name), class_="hint"),
    )
    return tag("details", tag("summary", "All settings"), body, class_="more")


def _titled(title: str, content: Html | None) -> Html | None:
    return None if content is None else tag("section", tag("h3", title), content)
