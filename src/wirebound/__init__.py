"""wirebound: train neural networks inside a strict budget of connections, by deep rewiring.

    model = wb.sparsify(model, connectivity=0.01)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    rewiring = wb.DeepR(model, optimizer, l1=1e-4)      # from here on, optimizer.step() is a DEEP R step
    ...
    loss.backward()
    optimizer.step()                                    # exactly K afterwards; rewiring.info says what happened
    optimizer.zero_grad()
"""

from wirebound import distributed, schedule
from wirebound.checkpoint import Checkpoint, CheckpointError, load, save
from wirebound.ledger import Ledger, ledger
from wirebound.methods import (
    CHT,
    GSE,
    SET,
    ConstantRate,
    DeepR,
    Dense,
    Evolve,
    Fixed,
    L1Shrinkage,
    LayerInfo,
    MagnitudePruning,
    Method,
    RigL,
    SoftDeepR,
    StepInfo,
    TopK,
    WeightAverage,
    drop,
    grow,
    when,
)  # fmt: skip
from wirebound.nn import (
    Dropout,
    LabelCrossEntropy,
    SparseConv1d,
    SparseConv2d,
    SparseConv3d,
    SparseConvTranspose1d,
    SparseConvTranspose2d,
    SparseConvTranspose3d,
    SparseGRU,
    SparseGRUCell,
    SparseLinear,
    SparseLSTM,
    SparseLSTMCell,
    SparseRNN,
    SparseRNNCell,
    centre_gradients_,
    freeze,
    label_cross_entropy,
    parameter_groups,
    set_rates,
    sparsify,
    to_dense,
    top_labels,
    unfreeze,
    wire_by_correlation_,
    wirings,
)  # fmt: skip
from wirebound.posterior import SampleCollector, Samples
from wirebound.version import __version__
from wirebound.wiring import Constraints, Wiring, WiringError

__all__ = [
    "CHT", "GSE", "SET", "Checkpoint", "CheckpointError", "ConstantRate", "Constraints", "DeepR", "Dense", "Dropout", "Evolve",
    "Fixed", "L1Shrinkage", "LabelCrossEntropy", "LayerInfo", "Ledger", "MagnitudePruning", "Method", "RigL",
    "SampleCollector", "Samples", "SoftDeepR", "SparseConv1d", "SparseConv2d", "SparseConv3d", "SparseConvTranspose1d", "SparseConvTranspose2d",
    "SparseConvTranspose3d", "SparseGRU", "SparseGRUCell", "SparseLSTM", "SparseLSTMCell", "SparseLinear",
    "SparseRNN", "SparseRNNCell", "StepInfo", "TopK", "WeightAverage", "Wiring", "WiringError", "__version__",
    "centre_gradients_", "distributed", "drop", "freeze", "grow", "label_cross_entropy", "ledger", "load", "parameter_groups",
    "save", "schedule", "set_rates", "sparsify", "to_dense", "top_labels", "unfreeze", "when", "wire_by_correlation_", "wirings",
]  # fmt: skip
