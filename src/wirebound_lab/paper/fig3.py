"""Figure 3: DEEP R and soft-DEEP R against pruning and ℓ1-shrinkage, which start fully connected. A panel for each task."""

from __future__ import annotations

from wirebound_lab.paper.fig3_mnist import MnistComparison
from wirebound_lab.paper.fig3_tasks import CifarComparison, SpeechComparison
from wirebound_lab.paper.figure import Figure, Part, Scale

PANELS: tuple[Part, ...] = (MnistComparison(), CifarComparison(), SpeechComparison())

FIG3 = Figure(
    name="fig3",
    title="Strict budgets against pruning and ℓ1-shrinkage",
    paper="Figure 3",
    claim="Though its budget is strict, DEEP R does about as well as pruning algorithms that train fully connected networks; "
    "at very low connectivity pruning and ℓ1-shrinkage fail completely while DEEP R and soft-DEEP R still work.",
    parts=PANELS,
    notes={
        Scale.QUICK: "MNIST panel on the bundled digits; CIFAR-10 and speech as in quick fig1b and fig2; one seed",
        Scale.FITTED: "MNIST: the paper's own settings; each point of the scans of pruning, ℓ1-shrinkage and soft-DEEP R once; "
        "CIFAR-10 and speech as in fig1b and fig2, DEEP R with two seeds, on CIFAR-10 the others with one",
        Scale.FULL: "MNIST: the paper's own settings, every point with all seeds",
    },
    costs={Scale.QUICK: "25 s", Scale.FITTED: "3 h, less where fig1a, fig1b, fig2 and fig5 have been run", Scale.FULL: "weeks"},
)
