"""Files that are not what they say: each is refused with its reason, and nothing is changed by the attempt."""

import copy
import os
import resource

import pytest
import torch
from checkpoint_helpers import assert_same_state, build, change_tensor, put_together, take_apart, take_steps

import wirebound as wb
from wirebound.checkpoint.container import METADATA

WIRING = "0.wiring"


@pytest.fixture
def kept(tmp_path):
    made = build(optimizer="adam")
    take_steps(*made, 4)
    wb.save(tmp_path / "c", method=made[0], scheduler=made[1], extra={"a": torch.arange(5)})
    return tmp_path / "c"


def _refused(path, match, **build_settings):
    made = build(**{"optimizer": "adam", "seed": 9, **build_settings})
    take_steps(*made, 2)
    before = copy.deepcopy(made)
    with pytest.raises(wb.CheckpointError, match=match) as found:
        wb.load(path, method=made[0], scheduler=made[1])
    assert "\n" not in str(found.value)
    assert str(path) in str(found.value)
    assert_same_state(before, made)


def _set(index, value):
    def change(tensor):
        tensor[index] = value

    return change


def _swap(tensor):
    tensor[[0, 1]] = tensor[[1, 0]]


def _pointers_that_wrap_around(tensor):
    """Never falls by differences that wrap around 2^64, and ends at K: an allocation of 2^62 if believed."""
    tensor[1:5] = torch.tensor([1 << 62, (1 << 63) - 1, -(1 << 62), -1])


@pytest.mark.parametrize(
    ("name", "change", "match"),
    [
        ("packed_rows", _set(0, 99), r"a row \(=99 at index 0\) must be inside"),
        ("packed_rows", _set(3, 0x7FFFFFFF), "must be inside"),
        ("packed_rows", lambda t: t.fill_(0), "distinct and sorted"),
        ("packed_rows", _swap, "distinct and sorted"),
        ("colptr", _set(0, 1), "must rise from 0"),
        ("colptr", _set(-1, 7), "must rise from 0"),
        ("colptr", _set(2, -1), "must rise from 0"),
        ("colptr", _set(2, 1 << 62), "must rise from 0"),
        ("colptr", _set(3, 0), "must never fall"),
        ("colptr", _pointers_that_wrap_around, "must rise from 0"),
        ("theta", _set(2, float("nan")), "must be finite"),
        ("theta", _set(2, float("inf")), "must be finite"),
        ("theta", _set(2, -0.5), r"exactly K .* 1 have θ < 0"),
        ("initial_counts", _set(0, 1000), "initial_counts"),
        ("initial_counts", _set(0, -1), "initial_counts"),
        ("identity", _set(0, -1), "identity"),
        ("identity", _set(1, 1 << 40), "identity"),
        ("sign_bound", _set(0, 7), "0s and 1s"),
        ("sign_bound", _set(0, 0), "no signs"),
    ],
)
def test_a_wiring_that_is_none(kept, name, change, match):
    change_tensor(kept, f"{WIRING}.{name}", change)
    _refused(kept, match)


@pytest.mark.parametrize(
    ("name", "change", "match"),
    [
        ("optimizer/state/0/exp_avg", _set(0, float("nan")), "must be finite"),
        ("optimizer/state/0/step", _set(0, -1.0), "must be a count"),
        ("optimizer/state/0/step", _set(0, float("nan")), "must be finite"),
        ("method/born/0", _set(0, 5), r"must be steps in \[0, 4\]"),
        ("method/born/0", _set(0, -1), r"must be steps in \[0, 4\]"),
        ("random/torch", lambda t: t.fill_(255), "generator"),
        ("4.bias", _set(0, float("inf")), "must be finite"),
    ],
)
def test_other_tensors(kept, name, change, match):
    change_tensor(kept, name, change)
    _refused(kept, match)


def _place(*keys):
    def change(document, value):
        for key in keys[:-1]:
            document = document[key]
        document[keys[-1]] = value

    return change


GROUP = ("optimizer", "state", "param_groups", 0)


@pytest.mark.parametrize(
    ("place", "value", "match"),
    [
        (("version",), 2, "has version 2, we read up to 1: update wirebound"),
        (("version",), 0, "must be a number >= 1"),
        (("version",), "1", "must be a number >= 1"),
        (("version",), True, "must be a number >= 1"),
        (("format",), "other", "one of wirebound"),
        (("more",), 1, "unknown parts: more"),
        (("steps",), -1, "steps"),
        (("writer",), 5, "writer"),
        (("method", "type"), "Fixed", "its method is Fixed, here it is DeepR"),
        (("optimizer", "type"), "SGD", "its optimizer is SGD"),
        (("method", "state", "steps"), 1 << 70, "steps"),
        (("method", "state", "steps"), 2.5, "steps"),
        (("method", "state", "steps"), None, "steps"),
        (("method", "state"), None, "method"),
        (("method", "state", "born"), [], "born"),
        (("method", "state", "born"), [None], "born"),
        (("method", "state", "more"), 1, "must hold"),
        (("scheduler", "state", "step"), 1, "must hold"),
        (("scheduler", "state", "gamma"), "x", "gamma"),
        ((*GROUP, "lr"), "x", "lr"),
        ((*GROUP, "lr"), {"$": "float", "value": "nan"}, "must be a number"),
        ((*GROUP, "betas"), [0.9], "betas"),
        ((*GROUP, "params"), [0, 0, 0, 0], "params"),
        ((*GROUP, "params"), [1, 0, 2, 3, 4], "same parameters"),
        (("optimizer", "state", "param_groups"), [], "1 parameter groups"),
        (("optimizer", "state", "state"), {"$": "dict", "items": [[77, {}]]}, "must belong to one of"),
        (("optimizer", "state", "state"), {"$": "dict", "items": [[0, {"step": 1}]]}, "must hold"),
        (("optimizer", "state", "state"), {"$": "dict", "items": [[0, {}], [0, {}]]}, "twice"),
        (("optimizer", "state", "state"), {"0": {}}, "must belong to one of"),
        (("model", "state", "4.bias"), 5, "4.bias"),
        (("model", "state", "4.bias"), None, "4.bias"),
        (("model", "state", "4.bias"), {"$": "tensor", "name": "0.bias"}, "referred to once|4.bias"),
        (("model", "state", "4.bias"), {"$": "tensor", "name": "nowhere"}, "must hold tensor 'nowhere'"),
        (("model", "state", "more"), 5, "more unknown here"),
        (("model", "wirings"), [], "1 wirings"),
        (("model", "wirings", 0, "budget"), 7, "budget"),
        (("model", "wirings", 0, "layers", 0), ["0", 8, 11], "another model"),
        (("model", "wirings", 0, "layers"), 3, "layers"),
        (("extra",), {"$": "tensor", "name": "4.bias"}, "referred to once"),
        (("extra",), {"$": "object", "class": "os.system"}, "not a value of the format"),
        (("extra",), {"$": "float", "value": "1"}, "not a value of the format"),
        (("extra",), {"$": "dict", "items": [[[], 1]]}, "pairs"),
    ],
)
def test_a_document_that_lies(kept, place, value, match):
    header, document, content = take_apart(kept)
    _place(*place)(document, value)
    put_together(kept, header, document, content)
    _refused(kept, match)


def test_sections_that_are_not_there(tmp_path):
    wb.save(tmp_path / "c", model=build()[0].model)
    with pytest.raises(wb.CheckpointError, match="it holds no optimizer, only model"):
        wb.load(tmp_path / "c", method=build()[0])


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"hidden": 9}, "another model"),
        ({"scope": "layer"}, "2 wirings"),
        ({"method": "dense"}, "0 wirings"),
        ({"method": "fixed"}, "its method is DeepR, here it is Fixed"),
        ({"optimizer": "sgd"}, "its optimizer is Adam, here it is SGD"),
        ({"optimizer": "amsgrad"}, "must hold .*max_exp_avg_sq|amsgrad"),
    ],
)
def test_another_model_method_or_optimiser(kept, settings, match):
    if settings == {"optimizer": "amsgrad"}:  # the file's own setting wins, as in torch
        wb.load(kept, method=build(optimizer="amsgrad")[0])
        return
    _refused(kept, match, **settings)


def _entry(change):
    def apply(header):
        name = next(name for name in header if name != METADATA)
        change(header[name])

    return apply


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (_entry(lambda e: e.update(dtype="OBJECT")), "damaged.*OBJECT"),
        (_entry(lambda e: e.update(dtype=["F32"])), "damaged"),
        (_entry(lambda e: e.update(dtype="U64")), "dtype .='U64'. of tensor"),
        (_entry(lambda e: e.update(shape=[1 << 60])), "damaged"),
        (_entry(lambda e: e.update(shape=[-1])), "damaged"),
        (lambda h: h.update(none={"dtype": "F32", "shape": [0, 1 << 40, 1 << 40], "data_offsets": [0, 0]}), "2\\^48|damaged"),
        (_entry(lambda e: e.update(shape=[True])), "damaged"),
        (_entry(lambda e: e.update(shape=[1] * 40)), "damaged"),
        (_entry(lambda e: e["shape"].extend([1] * 40)), "16 extents"),
        (_entry(lambda e: e.update(data_offsets=[0, 1 << 50])), "damaged"),
        (_entry(lambda e: e.update(data_offsets=[8, 0])), "damaged"),
        (_entry(lambda e: e.update(more=1)), "must have dtype"),
        (_entry(lambda e: e.pop("shape")), "damaged"),
        (lambda h: h.update(overlap=dict(next(v for k, v in h.items() if k != METADATA))), "damaged"),
        (lambda h: h.pop(next(k for k in h if k != METADATA)), "damaged"),
    ],
)
def test_a_header_that_lies(kept, change, match):
    header, document, content = take_apart(kept)
    change(header)
    put_together(kept, header, document, content)
    _refused(kept, match)


@pytest.mark.parametrize(
    ("raw", "match"),
    [
        (b"", "cut off or no checkpoint"),
        (b"\x10", "cut off or no checkpoint"),
        ((1 << 63).to_bytes(8, "little") + b"{}", "cut off or no checkpoint"),
        ((2).to_bytes(8, "little") + b"{}", "metadata"),
        ((2).to_bytes(8, "little") + b"[]", "one JSON object"),
        ((4).to_bytes(8, "little") + b"\xff\xfe\xfd\xfc", "not valid JSON"),
        ((200_000).to_bytes(8, "little") + b"[" * 200_000, "not valid JSON"),
        ((34).to_bytes(8, "little") + b'{"__metadata__":{"a":"b","a":"b"}}', "twice"),
        ((28).to_bytes(8, "little") + b'{"__metadata__":{"a":1e999}}', "too large"),
        ((26).to_bytes(8, "little") + b'{"__metadata__":{"a":NaN}}', "not a number"),
        ((9_000).to_bytes(8, "little") + b"1" * 9_000, "not valid JSON"),
    ],
)
def test_files_of_anything(tmp_path, raw, match):
    (tmp_path / "c").write_bytes(raw)
    _refused(tmp_path / "c", match)


def test_every_flipped_byte_and_every_cut_is_noticed(kept):
    raw = kept.read_bytes()
    for place in range(0, len(raw), 37):
        changed = bytearray(raw)
        changed[place] ^= 0x11
        kept.write_bytes(changed)
        with pytest.raises(wb.CheckpointError):
            wb.load(kept)
        kept.write_bytes(raw[:place])
        with pytest.raises(wb.CheckpointError):
            wb.load(kept)
    kept.write_bytes(raw + b"\0")
    with pytest.raises(wb.CheckpointError, match="damaged"):
        wb.load(kept)


def test_things_that_are_no_files(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, tmp_path / "nothing", "/dev/zero"):
        with pytest.raises(wb.CheckpointError, match="cannot be read"):
            wb.load(path)


def test_a_huge_header_is_not_read(tmp_path):
    """A sparse file: 64 GB by its size, nothing on disk, and nothing in memory."""
    with (tmp_path / "c").open("wb") as stream:
        stream.write((1 << 35).to_bytes(8, "little"))
        stream.truncate(1 << 36)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(wb.CheckpointError, match="must be at most"):
        wb.load(tmp_path / "c")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 10_000


def test_weights_that_are_lost_are_not_kept(tmp_path):
    made, scheduler = build()
    wb.save(tmp_path / "c", method=made, scheduler=scheduler)
    good = (tmp_path / "c").read_bytes()
    with torch.no_grad():
        made.model[4].bias[0] = float("nan")
    with pytest.raises(wb.CheckpointError, match=r"'4.bias' is not finite"):
        wb.save(tmp_path / "c", method=made)
    with torch.no_grad():
        made.model[4].bias[0] = 0
        made.model[0].wiring.theta[0] = float("inf")
    with pytest.raises(wb.WiringError, match="finite"):
        wb.save(tmp_path / "c", method=made)
    assert (tmp_path / "c").read_bytes() == good
