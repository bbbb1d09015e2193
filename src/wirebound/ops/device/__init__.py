"""All ops for devices other than the CPU, in torch operators that never wait for the device.

Nothing is asked of the device in a step: arrays are as long as they can get (``fixed.py``), layers come as whole wirings,
and counts stay where they are. It also runs on the CPU (``ops.use("device")``), where it is tested, and for fake tensors.
"""

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from wirebound.ops.backend import Backend
from wirebound.ops.device.draws import Regions, draw
from wirebound.ops.device.layers import DeviceLayers
from wirebound.ops.device.steps import DeviceSteps
from wirebound.ops.layout import Geometry
from wirebound.ops.philox import require_sample
from wirebound.ops.rule import WiringArrays


class DeviceBackend(DeviceLayers, DeviceSteps, Backend):
    name = "device"
    takes_whole_wirings = True
    everywhere = False  # also for tensors on the CPU

    def accepts(self, tensor: Tensor) -> bool:
        return self.everywhere or not tensor.is_cpu or isinstance(tensor, FakeTensor)

    def draws_on(self, device: torch.device) -> bool:
        return self.everywhere or device.type != "cpu"

    @staticmethod
    def sample_sorted(n: int, k: int, seed: int, stream: int, step: int, device: torch.device) -> Tensor:
        require_sample(n, k)
        start, rooms, counts = torch.tensor([[0], [n], [k]], device=device)
        return draw(Regions(start, rooms, counts, [stream]), k, seed, step, 2 * k > n)[0]

    def find(self, wiring: WiringArrays, positions: Tensor) -> Tensor:
        return self.find_within(wiring, positions, max(wiring.geometry.n_out))

    def all_finite(self, values: Tensor) -> bool:
        """True: a step looks for itself, on the device, and says so where someone asks for its counts."""
        return True

    def index_is_good(self, geometry: Geometry, budget: int, packed_rows: Tensor, colptr: Tensor) -> bool | None:
        return None
