"""The GPT whose matrices share one budget."""

import torch
import torch.nn.functional as F

import wirebound as wb
from wirebound.nn.sparse_layer import sparse_layers
from wirebound_lab.gpt import dead_neurons, fans, plain_gpt, sparse_gpt

SMALL = {"vocab": 20, "context": 12, "width": 16, "depth": 2, "heads": 2}


def test_all_matrices_share_one_budget_by_their_names() -> None:
    model = sparse_gpt(900, **SMALL)
    block = ["attention.query_key_value", "attention.out", "mlp.up", "mlp.down"]
    names = ["embed", "place", *(f"blocks.{i}.{name}" for i in range(2) for name in block), "head"]
    assert [name for name, _ in sparse_layers(model)] == names
    (wiring,) = wb.wirings(model)
    assert wiring.budget == 900
    assert wiring.possible == 16 * (20 + 12 + 20) + 2 * 12 * 16 * 16
    outside = dict(sparse_layers(sparse_gpt(900, cover_all=False, **SMALL)))
    assert set(outside) == set(names) - {"embed", "place", "head"}


def test_it_answers_as_its_dense_twin_and_does_not_look_ahead() -> None:
    model, tokens = sparse_gpt(900, **SMALL), torch.randint(20, (3, 12))
    logits = model(tokens)
    torch.testing.assert_close(logits, wb.to_dense(model)(tokens), atol=1e-5, rtol=1e-4)
    changed = tokens.clone()
    changed[:, 7:] = 0
    torch.testing.assert_close(model(changed)[:, :7], logits[:, :7])
    assert logits.std() < 1  # even guesses at first


def test_it_learns_with_exactly_k_connections() -> None:
    torch.manual_seed(0)
    model = sparse_gpt(900, **SMALL)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    rewiring = wb.DeepR(model, optimizer)
    text = torch.arange(12).repeat(4, 1) + torch.randint(8, (4, 1))
    losses = []
    for _ in range(40):
        loss = F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        wb.wirings(model)[0].check()
        assert rewiring.info is not None
        assert rewiring.info.active == 900
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_no_neuron_starts_without_connections_and_dead_ones_are_counted() -> None:
    model = sparse_gpt(1800, seed=3, **SMALL)
    wb.wirings(model)[0].check()
    for name, layer in sparse_layers(model):
        if name not in ("embed", "place"):
            to, of = fans(layer)
            shape = layer.wiring.layers[layer.layer_id]
            assert to.sum() == of.sum() == layer.active
            assert int((to == 0).sum()) == max(0, shape.n_out - layer.active)
    tokens = torch.randint(20, (4, 12))
    assert dead_neurons(model, tokens)["unconnected_neurons"] == 0
    with torch.no_grad():
        model.blocks[1].mlp.up.bias[:5] = -100.0
    counts = dead_neurons(model, tokens)
    assert counts["hidden_neurons"] == 128
    assert counts["silent_neurons"] >= 5


def test_the_plain_one_has_the_same_names() -> None:
    plain, sparse = plain_gpt(**SMALL), sparse_gpt(900, **SMALL)
    names = {name for name, _ in wb.to_dense(sparse).named_parameters()}
    assert names == {name for name, _ in plain.named_parameters()}
    assert abs(plain(torch.randint(20, (3, 12))).mean()) < 1
