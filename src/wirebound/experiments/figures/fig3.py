"""Figure 3: DEEP R and soft-DEEP R against pruning and ℓ1-shrinkage, which start fully connected. A panel for each task."""

from __future__ import annotations

from wirebound.experiments.figures.fig3_mnist import MnistComparison
from wirebound.experiments.figures.figure import Figure, Part, Scale

PANELS: tuple[Part, ...] = (MnistComparison(),)

FIG3 = Figure(
    name="fig3",
    title="Strict budgets against pruning and ℓ1-shrinkage",
    paper="Figure 3",
    claim="Though its budget is strict, DEEP R does about as well as pruning algorithms that train fully connected networks; "
    "at very low connectivity pruning and ℓ1-shrinkage fail completely while DEEP R and soft-DEEP R still work.",
    parts=PANELS,
    notes={
        Scale.QUICK: "MNIST panel on the bundled digits, few points, one seed",
        Scale.FITTED: "MNIST: the paper's own settings; each point of the scans of pruning, ℓ1-shrinkage and soft-DEEP R once",
        Scale.FULL: "MNIST: the paper's own settings, every point with all seeds",
    },
    costs={Scale.QUICK: "15 s", Scale.FITTED: "40 min (15 min after fig1a and fig5)", Scale.FULL: "2 h"},
)
