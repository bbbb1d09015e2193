"""What the kernels did, for those who count: ``FlopCounterMode`` sees torch operators only, and they are none.

While there are ``watchers`` of the operators that run, each kernel call also runs one that does nothing and says how
many multiply-adds the kernel did; its flop formula is twice that.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._C import _len_torch_dispatch_stack
from torch.utils.flop_counter import register_flop_formula

watchers = _len_torch_dispatch_stack

_library = torch.library.Library("wirebound", "DEF")
_library.define("multiply_add(Tensor x, int count) -> ()")
_library.impl("multiply_add", lambda x, count: None, "CompositeExplicitAutograd")


@register_flop_formula(torch.ops.wirebound.multiply_add)  # type: ignore[untyped-decorator]
def _flops(x_shape: Any, count: int, **kwargs: Any) -> int:
    return 2 * count


def tell(x: Tensor, count: int) -> None:
    """Note so many multiply-adds; ``x`` is an input of the kernel. For use while there are ``watchers()``."""
    torch.ops.wirebound.multiply_add(x, count)
