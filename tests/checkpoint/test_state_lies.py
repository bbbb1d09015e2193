"""State of optimisers and methods that is not what they would have made: refused, and not a bit is changed by it."""

import copy

import pytest
import torch
from checkpoint_helpers import METHODS, MORE_METHODS, OPTIMIZERS, build, everything, rewrite, take_steps

import wirebound as wb

HUGE = 10**400


def _bits(made):
    """All state, and all of the optimiser's and the method's settings, copied."""
    return copy.deepcopy(everything(*made))


def _assert_bits(before, made):
    after = everything(*made)
    assert [name for name, _ in before] == [name for name, _ in after]
    for (name, a), (_, b) in zip(before, after, strict=True):
        if isinstance(a, torch.Tensor):
            assert a.dtype == b.dtype, name
            assert torch.equal(a, b), name
        else:
            assert (type(a), a) == (type(b), b), name


def _other_tensors(tensor, *, scalar):
    """Tensors that cannot stand for this one: other types of the same and of other widths, other shapes, NaN."""
    types = {"F32": (torch.int32, torch.bfloat16, torch.uint8, torch.int64, torch.bool), "I32": (torch.float32, torch.int64)}
    kind = "F32" if tensor.is_floating_point() else "I32"
    found = [tensor.to(dtype) for dtype in types[kind] if dtype != tensor.dtype]
    if tensor.is_floating_point():
        found += [torch.full_like(tensor, value) for value in (float("nan"), float("inf"))]
        if not scalar:
            found.append(tensor.double())
    if scalar:
        found += [torch.ones(33, dtype=dtype) for dtype in (torch.bfloat16, torch.float32)] + [tensor.view(1)]
    else:
        flat = tensor.reshape(-1)
        found += [flat[:-1], torch.cat((flat, flat[:1])), tensor[None], flat[0], flat[:0]]
    return found


def _lies_of_optimizer(document, tensors):
    """(what, the change) for each piece of state of the first parameter that has any."""
    pairs = document["optimizer"]["state"]["state"]
    items = pairs["items"] if "$" in pairs else pairs
    kept = items[0][1]
    for name in list(kept):
        place = kept[name]["name"]
        tensor = tensors[place]
        for other in _other_tensors(tensor, scalar=tensor.dim() == 0):
            yield f"{name} {other.dtype} {tuple(other.shape)}", lambda t, d, place=place, other=other: t.update({place: other})
        values = [[], [kept[name]], {"a": kept[name]}, 5, HUGE, True, "x", {"$": "float", "value": "nan"}]
        values += [] if name == "momentum_buffer" else [None]
        for value in values:
            yield f"{name}={str(value)[:30]}", lambda t, d, name=name, value=value: _first(d).update({name: value})
        if name == "step":
            yield "step -1", lambda t, d, place=place: t[place].fill_(-1)
        if not (len(kept) == 1 and name == "momentum_buffer"):  # SGD makes it when it needs it
            yield f"no {name}", lambda t, d, name=name: _first(d).pop(name)
    yield "more", lambda t, d: _first(d).update(more=1)
    yield "more tensors", lambda t, d: (t.update(x=torch.ones(33)), _first(d).update(more={"$": "tensor", "name": "x"}))


def _first(document):
    return document["optimizer"]["state"]["state"]["items"][0][1]


def _refuse_all(path, made, lies, match=None):
    """Each of the lies, told by the file at ``path``, is refused, and ``made`` keeps every bit."""
    good, before, count = path.read_bytes(), _bits(made), 0
    for what, lie in lies:
        path.write_bytes(good)
        rewrite(path, lie)
        with pytest.raises(wb.CheckpointError, match=match) as found:
            wb.load(path, method=made[0], scheduler=made[1])
            pytest.fail(f"{what} was accepted")
        assert "\n" not in str(found.value), what
        assert len(str(found.value)) < 1000, what
        _assert_bits(before, made)
        count += 1
    path.write_bytes(good)
    wb.load(path, method=made[0], scheduler=made[1])  # the file without lies
    return count


def _tell(path, method, optimizer, lies_of, every, match=None):
    """Tell each ``every``-th of the lies to a training that has gone on; how many."""
    made = build(method, optimizer, seed=1)
    take_steps(*made, 3)
    wb.save(path, method=made[0], scheduler=made[1])
    take_steps(*made, 2)
    found = {}
    rewrite(path, lambda tensors, document: found.update(t=tensors, d=document))
    lies = list(lies_of(found["d"], found["t"]))
    # Where it begins differs, so that the quick tests together tell each kind of lie to someone.
    return _refuse_all(path, made, lies[len(optimizer + method) % every :: every], match)


STATEFUL = [name for name in OPTIMIZERS if name != "sgd"]


@pytest.mark.parametrize("optimizer", STATEFUL)
def test_optimiser_state(tmp_path, optimizer):
    assert _tell(tmp_path / "c", "deep-r", optimizer, _lies_of_optimizer, 6, r"optimiser state \d+") > 2


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", STATEFUL)
@pytest.mark.parametrize("method", ["deep-r", "dense"])
def test_all_lies_about_optimiser_state(tmp_path, optimizer, method):
    assert _tell(tmp_path / "c", method, optimizer, _lies_of_optimizer, 1, r"optimiser state \d+") > 20


@pytest.mark.parametrize("optimizer", [name for name in STATEFUL if name not in ("momentum", "nesterov")])
def test_a_count_for_each_connection_is_none(tmp_path, optimizer):
    """It would be moved with its connections as if it were numbers of four bytes."""
    made = build(optimizer=optimizer)
    take_steps(*made, 2)
    wb.save(tmp_path / "c", method=made[0], scheduler=made[1])
    budget = made[0].model[0].wiring.budget

    def lie(tensors, document):
        for name in [name for name in tensors if name.endswith("/step")]:
            tensors[name] = torch.ones(budget, dtype=torch.bfloat16)

    _refuse_all(tmp_path / "c", made, [("steps", lie)], match="must be a count, is bfloat16")


def _places(value, *keys):
    """The places of all values in the document of a method, those that hold others too."""
    if keys:
        yield keys, value
    if isinstance(value, dict) and "$" not in value:
        for key, item in value.items():
            yield from _places(item, *keys, key)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _places(item, *keys, i)


def _lies_of_method(document, tensors):
    state = document["method"]["state"]
    for keys, value in list(_places(state)):

        def put(t, d, keys=keys, value=None):
            holder = d["method"]["state"]
            for key in keys[:-1]:
                holder = holder[key]
            holder[keys[-1]] = value

        if isinstance(value, dict) and value.get("$") == "tensor":
            place = value["name"]
            others = _other_tensors(tensors[place], scalar=False)
            for other in others if tensors[place].dtype != torch.bool else [tensors[place].to(torch.uint8)]:
                yield f"{keys} {other.dtype} {tuple(other.shape)}", lambda t, d, place=place, other=other: t.update({place: other})
            others = {torch.int32: (-1, 4, 2**31 - 1), torch.int8: (0, 2, -128)}.get(tensors[place].dtype, ())
            for number in others:
                yield f"{keys} {number}", lambda t, d, place=place, number=number: t[place].view(-1)[-1].fill_(number)
        values = [None, "x", True, {}, {"$": "float", "value": "nan"}, HUGE]
        if isinstance(value, float):
            values += [0.5, {"$": "float", "value": "-inf"}, -HUGE, []]
        elif isinstance(value, int):
            values += [-1, 1.5, 1 << 63, {"$": "float", "value": "inf"}, []]
        elif isinstance(value, list):
            values += [[*value, 1], 5] + ([value[:-1]] if value else [])
        for new in values:
            yield f"{keys}={str(new)[:20]}", lambda t, d, put=put, new=new: put(t, d, value=new)
    for key in [key for key in state if key != "updates"]:  # files from before counts were kept lack it
        yield f"no {key}", lambda t, d, key=key: d["method"]["state"].pop(key)
    yield "more", lambda t, d: d["method"]["state"].update(more=1)
    yield "other steps", lambda t, d: d.update(steps=2)
    yield "steps of none", lambda t, d: d.update(steps=None)


@pytest.mark.parametrize("method", [*METHODS, *MORE_METHODS])
def test_method_state(tmp_path, method):
    assert _tell(tmp_path / "c", method, "adam", _lies_of_method, 5) > 2


@pytest.mark.slow
@pytest.mark.parametrize("method", [*METHODS, *MORE_METHODS])
@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_all_lies_about_method_state(tmp_path, method, optimizer):
    assert _tell(tmp_path / "c", method, optimizer, _lies_of_method, 1) > 12


@pytest.mark.parametrize(
    "value",
    [HUGE, -1.0, {"$": "float", "value": "inf"}, {"$": "float", "value": "nan"}, [1], "x"],
    ids=["huge", "negative", "inf", "nan", "list", "text"],
)
def test_a_learning_rate_that_is_none(tmp_path, value):
    path, made = tmp_path / "c", build(optimizer="rmsprop")
    take_steps(*made, 2)
    wb.save(path, method=made[0], scheduler=made[1])

    def lie(tensors, document):
        document["optimizer"]["state"]["param_groups"][0]["lr"] = value

    _refuse_all(path, made, [("lr", lie)], match="lr")


def test_settings_with_which_the_optimiser_cannot_step(tmp_path):
    path, made = tmp_path / "c", build(optimizer="adam")
    take_steps(*made, 2)
    wb.save(path, method=made[0], scheduler=made[1])

    def lie(tensors, document):
        document["optimizer"]["state"]["param_groups"][0]["betas"] = {"$": "tuple", "items": [1.0, 0.99]}

    _refuse_all(path, made, [("betas", lie)], match="cannot make a step with its settings")


@pytest.mark.parametrize(
    ("key", "value"),
    [("last_epoch", HUGE), ("gamma", {"$": "float", "value": "nan"}), ("_last_lr", 3)],
    ids=["huge", "nan", "list"],
)
def test_scheduler_state(tmp_path, key, value):
    path, made = tmp_path / "c", build()
    take_steps(*made, 2)
    wb.save(path, method=made[0], scheduler=made[1])
    _refuse_all(path, made, [(key, lambda t, d: d["scheduler"]["state"].update({key: value}))], match=key)
