"""torch.fx patches ``nn.Module`` for all threads: other threads must not notice, and two traces must not mix."""

import threading

import torch
from chain_models import TwoLayers
from torch import nn

import wirebound as wb
from wirebound.export import read_network


def test_other_threads_go_on_while_a_model_is_traced():
    torch.manual_seed(0)
    other = nn.Sequential(TwoLayers(), nn.Tanh())
    x = torch.randn(4, 20)
    wanted = other(x).detach()
    ready, stop, failures, passes = threading.Event(), threading.Event(), [], [0]

    def forward_passes():
        try:
            while not stop.is_set():
                y = other(x)
                assert type(y) is torch.Tensor
                assert torch.equal(y, wanted)
                passes[0] += 1
                ready.set()
        except BaseException as error:
            failures.append(error)
            ready.set()

    def traces():
        try:
            for seed in range(15):
                assert len(read_network(wb.sparsify(TwoLayers(), connectivity=0.3, seed=seed)).layers) == 2
        except BaseException as error:
            failures.append(error)

    runner = threading.Thread(target=forward_passes)
    runner.start()
    ready.wait()
    before = passes[0]
    tracers = [threading.Thread(target=traces) for _ in range(3)]
    for thread in tracers:
        thread.start()
    for thread in tracers:
        thread.join()
    stop.set()
    runner.join()
    assert failures == []
    assert passes[0] > before
    assert nn.Module.__call__ is nn.Module._wrapped_call_impl
