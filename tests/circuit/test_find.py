"""The search finds the connections that were put there, and ablation says what it must."""

import pytest
import torch
from torch import Tensor, nn

import wirebound as wb
from wirebound_lab.circuit.ablate import accuracies, accuracy, chance, only
from wirebound_lab.circuit.find import find_circuit
from wirebound_lab.circuit.study import ablate
from wirebound_lab.tasks.task import Questions

INPUTS, ASKED = 8, 600
STRONG, SPARE = 1, 3  # connections are sorted by input and output: input 0 to output 1, input 1 to output 1


@pytest.fixture
def known() -> tuple[nn.Module, Questions]:
    """Inputs 0 and 1 both say the answer, one of them louder; all others are noise, faintly heard."""
    model = wb.sparsify(nn.Sequential(nn.Linear(INPUTS, 2, bias=False)), connectivity=1.0, seed=0)
    (wiring,) = wb.wirings(model)
    wiring.release_signs_()
    draw = torch.Generator().manual_seed(0)
    weights = 0.02 * torch.randn(2 * INPUTS, generator=draw)
    weights[:4] = torch.tensor([0.0, 3.0, 0.0, 1.0])
    with torch.no_grad():
        wiring.theta.copy_(weights)
    answers = torch.arange(ASKED) % 2
    x = torch.randn(ASKED, INPUTS, generator=draw)
    x[:, :2] = (2.0 * answers - 1)[:, None]
    return model, Questions("which side", x, answers, lambda outputs: outputs)


def _only(*numbers: int) -> Tensor:
    kept = torch.zeros(2 * INPUTS, dtype=torch.bool)
    kept[list(numbers)] = True
    return kept


def test_the_core_is_enough_and_the_circuit_has_its_spares(known):
    model, asked = known
    (wiring,) = wb.wirings(model)
    before = wiring.theta.detach().clone()
    found = find_circuit(model, asked)
    assert torch.equal(found.core, _only(STRONG)) or torch.equal(found.core, _only(SPARE))
    assert torch.equal(found.circuit, _only(STRONG, SPARE))
    assert torch.equal(wiring.theta, before), "the network is as it was"
    wiring.check()
    result = ablate(model, asked, found.circuit, found.core)
    assert result.whole == result.kept == result.core_kept == result.others == 1.0
    assert abs(result.zeroed - 0.5) < 0.06
    assert abs(result.zeroed_centred - 0.5) < 0.06
    assert (result.connections, result.core, result.budget, result.chance) == ([STRONG, SPARE], 1, 16, 0.5)


def test_weights_come_back_after_an_error(known):
    model, _ = known
    (wiring,) = wb.wirings(model)
    before = wiring.theta.detach().clone()
    with pytest.raises(RuntimeError, match="inside"), only(model, _only()):
        assert not wiring.theta.any()
        raise RuntimeError("inside")
    assert torch.equal(wiring.theta, before)


def test_knowledge_behind_a_constant_preference_is_seen(known):
    model, asked = known
    biased = asked._replace(scores=lambda outputs: outputs + torch.tensor([9.0, 0.0]))
    assert accuracies(model, biased) == (0.5, 1.0)
    assert chance(asked) == 0.5


def test_a_network_that_cannot_answer_has_no_circuit(known):
    model, asked = known
    wrong = asked._replace(answers=1 - asked.answers)
    assert accuracy(model, wrong) == 0.0
    with pytest.raises(ValueError, match="accuracy of the network"):
        find_circuit(model, wrong)
