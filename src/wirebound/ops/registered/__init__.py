"""The ops of layers as operators that torch knows, for graphs: ``torch.compile``, ``torch.export``, ``make_fx``.

Each is functional and has no state: positions are among its arguments, so that a graph stays right when connections move.
θ, packed_rows and colptr are those of a whole wiring, whose arrays never change their shape; the columns from ``first`` on
are the layer. Gradients to θ are as long as θ, 0 outside of the layer. Eager calls do not come this way: an autograd node
around a kernel takes less time than a registered operator.
"""

from wirebound.ops.registered.conv import conv2d, conv2d_backward
from wirebound.ops.registered.linear import linear, linear_backward
from wirebound.ops.registered.recurrent import recurrent, recurrent_backward

__all__ = ["OPERATORS", "conv2d", "conv2d_backward", "linear", "linear_backward", "recurrent", "recurrent_backward"]

OPERATORS = (linear, linear_backward, conv2d, conv2d_backward, recurrent, recurrent_backward)
