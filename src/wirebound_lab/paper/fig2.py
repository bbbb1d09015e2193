"""Figure 2: framewise phone classification with a bidirectional LSTM."""

from functools import partial

from wirebound_lab.paper.fig1b import draw_by_connectivity
from wirebound_lab.paper.figure import Drawn, Figure, Panel, Reading, Scale
from wirebound_lab.paper.measure import ERROR, METHOD_NAMES, difference
from wirebound_lab.paper.task_runs import SPEECH

_NEAR = 0.1  # the connectivity of the paper's claim
runs = partial(SPEECH.runs, methods=("deep-r", "fixed", "dense", "soft-deep-r"))


def read(r: Reading) -> Drawn:
    drawn = draw_by_connectivity(r, ERROR, "frame error", _NEAR, SPEECH, "fully connected, with ℓ2")
    dense = r.mean(r.runs["dense"][1.0], ERROR.key)
    if dense is not None:
        claim = "Speech: frame error of the fully connected LSTM with ℓ2"
        note = "another corpus: the figures cannot be compared, only what follows"
        drawn.finding(claim, "28.3 % (TIMIT)", dense.percent(), dense.count, None, note)
    for method in ("deep-r", "soft-deep-r"):
        gain = difference(r.done, r.runs["dense"][1.0], r.runs[method].get(_NEAR, []), ERROR.key)
        if gain is not None:
            name, near = METHOD_NAMES[method], f"{100 * _NEAR:g} %"
            claim = f"Speech: {name} is slightly better than the fully connected network around {near}"
            drawn.finding(claim, "slightly better", gain.words("less error", "more error"), gain.count, gain.value > 0)
    gains = {}
    for level in sorted(r.runs["fixed"]):
        if (gain := difference(r.done, r.runs["fixed"][level], r.runs["deep-r"][level], ERROR.key)) is not None:
            gains[level] = gain
    if gains:
        claim = "Speech: DEEP R beats fixed random connectivity at every level"
        words = [f"{gain.words('less error', 'more error')} at {100 * level:g} %" for level, gain in gains.items()]
        holds = all(gain.least > 0 for gain in gains.values())
        count = min(gain.count for gain in gains.values())
        drawn.finding(claim, "consistently", "; ".join(words), count, holds, "read as: in every seed at every level")
    return drawn


FIG2 = Figure(
    "fig2", "Speech: error of a bidirectional LSTM against connectivity", "Figure 2",
    "DEEP R and soft-DEEP R are slightly better than the fully connected LSTM around 10 % connectivity, and DEEP R "
    "beats fixed random connectivity at every level.",
    panels=(Panel(runs, read),),
    notes={
        Scale.QUICK: "32 cells, 96 utterances, two epochs, one seed",
        Scale.FITTED: "6 epochs instead of 40, the same for all methods, on real speech with forced-alignment labels instead of TIMIT",
        Scale.FULL: "the paper's 40 epochs; with WIREBOUND_SPEECH=timit on TIMIT itself",
    },
    costs={Scale.QUICK: "30 s", Scale.FITTED: "45 min", Scale.FULL: "5 h"}, seeds=2,
)  # fmt: skip
