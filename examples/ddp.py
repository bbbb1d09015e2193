"""Data-parallel training of a sparse network with plain torch:

    torchrun --standalone --nproc-per-node 2 examples/ddp.py

All ranks go through the same batches, and each takes its part. The learning curve does not depend on the number of
processes, up to rounding.
"""

import argparse
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import wirebound as wb
from wirebound_lab import data as datasets


def main() -> None:
    parser = argparse.ArgumentParser(description="Data-parallel DEEP R; start it with torchrun.")
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--connectivity", type=float, default=0.05)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch-size", type=int, default=64, help="total over all processes")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", default="gloo", help="gloo on processors, nccl on graphics cards")
    options = parser.parse_args()
    # A rank that ends is noticed at once; the timeout is for one that hangs.
    dist.init_process_group(options.backend, timeout=timedelta(minutes=5))

    data = datasets.load(options.data)
    x, y = data.inputs("train", flatten=True), data.train_y
    model: nn.Module = nn.Sequential(nn.Linear(x.shape[1], 300), nn.ReLU(), nn.Linear(300, data.classes))
    model = wb.sparsify(model, connectivity=options.connectivity, init="sparse-fan-in", seed=options.seed)
    ddp = wb.distributed.wrap(model)  # torch's DistributedDataParallel; the wiring itself is never sent
    optimizer = torch.optim.SGD(ddp.parameters(), lr=options.lr)
    rewiring = wb.DeepR(ddp, optimizer, l1=1e-4)

    draw = torch.Generator().manual_seed(options.seed)  # the same on all ranks, so they draw the same batches
    for step in range(1, options.steps + 1):
        batch = torch.randint(len(y), (options.batch_size,), generator=draw)
        mine = wb.distributed.part(batch)
        loss = F.cross_entropy(ddp(x[mine]), y[mine], reduction="sum") * wb.distributed.sum_weight(len(batch))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        info = rewiring.info
        if step % 500 == 0 and dist.get_rank() == 0:
            print(f"step {step}: {info.active} of {info.budget} connections, {info.rewired} rewired", flush=True)
    wb.distributed.check(rewiring)  # all ranks hold the same wiring; wrap() also checks every 100 passes

    if dist.get_rank() == 0:
        model.eval()
        with torch.no_grad():
            right = (model(data.inputs("test", flatten=True)).argmax(1) == data.test_y).double().mean().item()
        print(f"{dist.get_world_size()} processes, test accuracy {100 * right:.2f} %")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
