"""Figure 2: framewise phone classification with a bidirectional LSTM."""

from functools import partial

from wirebound_lab.paper.evidence import NOT_RUN, all_of, difference, paired_test
from wirebound_lab.paper.fig1b import draw_by_connectivity
from wirebound_lab.paper.figure import Drawn, Figure, Panel, Reading, Scale
from wirebound_lab.paper.measure import ERROR, METHOD_NAMES
from wirebound_lab.paper.task_runs import SPEECH

_NEAR = 0.1  # the connectivity of the paper's claim
_TRIED = {
    "deep-r": "the best of α 0.01, 0.03 and 0.1 on validation data (results/search); seeds are added where fewer decide nothing",
    "soft-deep-r": "the best of α 0.003, 0.01, 0.03, 0.1 and 0.3 on validation data (results/search)",
}
runs = partial(SPEECH.runs, methods=("deep-r", "fixed", "dense", "soft-deep-r"))


def read(r: Reading) -> Drawn:
    drawn = draw_by_connectivity(r, ERROR, "frame error", _NEAR, SPEECH, "fully connected, with ℓ2")
    dense = r.mean(r.runs["dense"][1.0], ERROR.key)
    claim = "Speech: frame error of the fully connected LSTM with ℓ2"
    note = "another corpus: the figures cannot be compared, only what follows; TIMIT itself: docs/data.md"
    drawn.finding(claim, "28.3 % (TIMIT)", dense.percent() if dense else NOT_RUN, dense.count if dense else 0, None, "none: needs TIMIT", note)
    for method in ("deep-r", "soft-deep-r"):
        dense_runs, own = r.runs["dense"][1.0], r.runs[method].get(_NEAR, [])
        gain = difference(r.done, dense_runs, own, ERROR.key)
        name, near = METHOD_NAMES[method], f"{100 * _NEAR:g} %"
        claim = f"Speech: {name} is slightly better than the fully connected network around {near}"
        holds = r.paired_verdict(gain.above(), [(dense_runs, own)])
        ours, test = gain.words("less error", "more error"), paired_test([gain])
        drawn.finding(claim, "slightly better", ours, gain.count, holds, test, _TRIED[method])
    _at_levels(drawn, r, "fixed", sorted(r.runs["fixed"]), "Speech: DEEP R beats fixed random connectivity at every level")
    lowest = min(r.runs["soft-deep-r"])
    claim = "Speech: DEEP R beats soft-DEEP R at very low connectivity"
    _at_levels(drawn, r, "soft-deep-r", [lowest], claim, "soft-DEEP R by the highest connectivity that it ever met")
    return drawn


def _at_levels(drawn: Drawn, r: Reading, rival: str, levels: list[float], claim: str, note: str | None = None) -> None:
    """DEEP R against a rival with as many connections, seed by seed; all levels together are one claim."""
    gains = {level: difference(r.done, r.runs[rival][level], r.runs["deep-r"][level], ERROR.key) for level in levels}
    run = {level: gain for level, gain in gains.items() if gain.count}
    ours = "; ".join(f"{gain.words('less error', 'more error')} at {100 * level:g} %" for level, gain in run.items())
    compared = ((r.runs["deep-r"][level], r.runs[rival][level]) for level in levels)
    verdict = r.paired_verdict(all_of(gain.above() for gain in gains.values()), compared)
    test, seeds = paired_test(list(run.values()), "above 0 at each level"), min(gain.count for gain in gains.values())
    drawn.finding(claim, "consistently", ours or NOT_RUN, seeds, verdict, test, note)


FIG2 = Figure(
    "fig2", "Speech: error of a bidirectional LSTM against connectivity", "Figure 2",
    "DEEP R and soft-DEEP R are slightly better than the fully connected LSTM around 10 % connectivity, and DEEP R "
    "beats fixed random connectivity at every level.",
    panels=(Panel(runs, read),),
    notes={
        Scale.QUICK: "32 cells, 96 utterances, two epochs, one seed",
        Scale.FITTED: "the paper's 40 epochs, on real speech with forced-alignment labels instead of TIMIT; α and ℓ2 chosen on validation data",
        Scale.FULL: "the paper's 40 epochs; with WIREBOUND_SPEECH=timit on TIMIT itself",
    },
    costs={Scale.QUICK: "30 s", Scale.FITTED: "7 h", Scale.FULL: "7 h"},
)  # fmt: skip
