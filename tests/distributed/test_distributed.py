"""Two real processes against one: the same learning, the same wiring on all ranks, only K gradients on the way."""

import fcntl
import os

import pytest
import rank_scenarios
import torch

import wirebound as wb
from wirebound_lab.run.config import ConfigError
from wirebound_lab.run.distributed import RankFailedError, launch


@pytest.fixture(scope="session")
def ranks(tmp_path_factory):
    """What two ranks found; run once, also where the tests themselves run in several processes."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / "two-ranks"
    with (shared / "two-ranks.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            folder.mkdir()
            assert launch(rank_scenarios.everything, (str(folder),), 2) == 0
    found = [torch.load(folder / f"rank{number}.pt", weights_only=True) for number in (0, 1)]
    return [{**one, "folder": folder} for one in found]


@pytest.mark.parametrize("case", list(rank_scenarios.CASES))
def test_two_processes_learn_what_one_learns(ranks, case):
    one = rank_scenarios.result(case)
    two = ranks[0][case]
    assert len(one["losses"]) == rank_scenarios.STEPS
    torch.testing.assert_close(two["losses"], one["losses"], rtol=1e-8, atol=1e-10)
    assert two["rewired"] == one["rewired"]
    if case != "fixed":
        assert sum(one["rewired"]) > 100
    for name, value in one["state"].items():
        if value.is_floating_point():
            torch.testing.assert_close(two["state"][name], value, rtol=1e-6, atol=1e-9)
        else:
            assert torch.equal(two["state"][name], value), name


@pytest.mark.parametrize("case", list(rank_scenarios.CASES))
def test_all_ranks_hold_the_same_bits(ranks, case):
    first, second = (found[case] for found in ranks)
    assert first["losses"] == second["losses"]
    assert all(torch.equal(value, second["state"][name]) for name, value in first["state"].items())


def test_only_k_gradients_travel(ranks):
    for found in ranks:
        assert found["bytes"]["sent"] == found["bytes"]["steps"] * found["bytes"]["allowed"]


def test_the_wiring_does_not_travel_but_other_buffers_do(ranks):
    assert ranks[0]["buffers"] == ["1.num_batches_tracked", "1.running_mean", "1.running_var"]


def test_ranks_start_with_the_wiring_of_rank_0(ranks):
    assert [found["other seed"]["seed"] for found in ranks] == [0, 0]
    assert ranks[1]["other seed"]["losses"][:4] == ranks[0]["perceptron"]["losses"][:4]


def test_plain_ddp_and_names_of_layers(ranks):
    assert ranks[0]["plain"] == ["0", "2"]


@pytest.mark.parametrize("case", ["perceptron", "rigl"])
def test_plain_ddp_with_another_seed_on_each_rank(ranks, case):
    first, second = (found["plain, other seeds"][case] for found in ranks)
    assert (first["seed"], second["seed"]) == (0, 0)
    assert first["losses"] == second["losses"]
    assert first["rewired"] == second["rewired"]
    assert all(torch.equal(value, second["state"][name]) for name, value in first["state"].items())


def test_plain_ddp_that_sends_no_buffers_is_refused_with_other_seeds(ranks):
    for found in ranks:
        assert "rank 1 holds another wiring than rank 0: build the model with one seed" in (
            found["plain, other seeds, no buffers"]
        )


@pytest.mark.parametrize("when", rank_scenarios.SHARDED_WHEN)
@pytest.mark.parametrize("how", rank_scenarios.SHARDED_HOW)
def test_a_sharded_model_is_refused_by_name(ranks, how, when):
    for found in ranks:
        message = found["sharded"][how][when]
        assert "use DistributedDataParallel (wb.distributed.wrap)" in message
        assert "FSDP" in message or "DTensor" in message
        assert "shard" in message


def test_a_distributed_input_is_refused_by_name(ranks):
    assert "not DTensor" in ranks[0]["distributed input"]


def test_data_parallel_without_a_graphics_card_passes_through():
    model = rank_scenarios.perceptron()
    x = torch.randn(4, 784, dtype=torch.float64)
    assert torch.equal(torch.nn.DataParallel(model)(x), model(x))


def test_a_checkpoint_of_two_processes_goes_on_in_one(ranks):
    alone = rank_scenarios.half(ranks[0]["folder"] / "half.safetensors", True)
    for name, value in ranks[0]["second half"].items():
        torch.testing.assert_close(alone[name], value, rtol=1e-6, atol=1e-9)


def test_a_rank_that_drifts_is_found_and_named(ranks):
    for found in ranks:
        assert "after step 8, rank 1 holds another wiring than rank 0" in found["drift"]
        assert "after 6 training passes, rank 1 holds another wiring" in found["drift, watched"]


def test_ranks_with_other_models_are_refused(ranks):
    for found in ranks:
        assert "rank 1 has wirings" in found["other budget"]
        assert "same budget on all ranks" in found["other budget"]


def test_a_killed_rank_ends_the_job_with_a_clear_message():
    with pytest.raises(RankFailedError, match=r"rank 1 of 2 was ended by SIGKILL .*last checkpoint"):
        launch(rank_scenarios.fail, ("killed",), 2)


def test_an_error_in_a_rank_is_the_error_of_the_job():
    with pytest.raises(RankFailedError, match="rank 1 of 2 failed: ArithmeticError: the loss is not finite"):
        launch(rank_scenarios.fail, ("raised",), 2)


def test_wrong_input_is_reported_as_such():
    with pytest.raises(ConfigError, match=r"^lr \(=-1\) must be > 0$"):
        launch(rank_scenarios.wrong_input, (), 2)
    with pytest.raises(ConfigError, match=r"processes \(=0\) must be >= 1"):
        launch(rank_scenarios.wrong_input, (), 0)


def test_without_a_group_there_is_one_rank():
    assert (wb.distributed.rank(), wb.distributed.world_size()) == (0, 1)
    batch = torch.arange(7)
    assert torch.equal(wb.distributed.part(batch), batch)
    parts = [wb.distributed.part(batch, of=3, number=n) for n in range(3)]
    assert [len(p) for p in parts] == [3, 2, 2]
    assert torch.equal(torch.cat(parts), batch)
    with pytest.raises(ValueError, match="init_process_group"):
        wb.distributed.wrap(rank_scenarios.perceptron())


def test_fingerprint_sees_every_part():
    model = rank_scenarios.perceptron()
    (wiring,) = wb.wirings(model)
    seen = {wb.distributed.fingerprint([wiring])}
    for change in (
        lambda: wiring.theta.data.__setitem__(3, wiring.theta[3].item() + 1e-14),
        lambda: wiring.packed_rows.__setitem__(5, int(wiring.packed_rows[5]) ^ -(1 << 31)),
        lambda: wiring.colptr.__setitem__(9, int(wiring.colptr[9]) + 1),
        lambda: wiring.identity.__setitem__(0, 1),
        lambda: setattr(wiring, "sign_bound", False),
    ):
        change()
        seen.add(wb.distributed.fingerprint([wiring]))
    assert len(seen) == 6
