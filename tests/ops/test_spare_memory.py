"""Memory that is used again: only when nobody needs it any more, and never too much of it."""

import pytest
import torch

from wirebound.ops import spare_memory

COUNT = spare_memory.LARGE_PAGE  # numbers, so four or eight times as many bytes


@pytest.fixture(autouse=True)
def _clean():
    spare_memory._spare.clear()
    yield
    spare_memory._spare.clear()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_piece_comes_back_when_its_last_tensor_is_gone(dtype):
    like = torch.empty(0, dtype=dtype)
    first = spare_memory.take(like, COUNT)
    assert first.dtype is dtype
    assert first.shape == (COUNT,)
    assert first.data_ptr() % spare_memory.LARGE_PAGE == 0
    first.fill_(1)
    where, view = first.data_ptr(), first[10:20]
    del first
    second = spare_memory.take(like, COUNT)
    assert second.data_ptr() != where  # the view still needs the first
    second.fill_(2)
    assert view.eq(1).all()
    del view
    assert spare_memory.take(like, COUNT - 5).data_ptr() == where


def test_what_is_held_is_bounded(monkeypatch):
    like = torch.empty(0)
    monkeypatch.setattr(spare_memory, "MOST", 20 * COUNT)
    pieces = [spare_memory.take(like, COUNT) for _ in range(8)]
    assert spare_memory.held() == 0
    pieces.clear()
    assert 0 < spare_memory.held() <= spare_memory.MOST
    held = spare_memory.held()
    large = spare_memory.take(like, 3 * COUNT)  # nothing fits: it takes the place of one that was held
    assert 0 < spare_memory.held() < held
    assert large.numel() == 3 * COUNT


def test_batches_of_different_lengths_share_one_piece():
    like = torch.empty(0)
    longest = spare_memory.take(like, 4 * COUNT)
    where, held = longest.data_ptr(), longest.numel() * 4 + spare_memory.LARGE_PAGE
    del longest
    for count in (COUNT, 3 * COUNT, 4 * COUNT, 2 * COUNT):
        assert spare_memory.held() == held
        assert spare_memory.take(like, count).data_ptr() == where


def test_the_smallest_that_is_large_enough_is_taken(monkeypatch):
    like = torch.empty(0)
    small, large = spare_memory.take(like, COUNT), spare_memory.take(like, 3 * COUNT)
    places = [small.data_ptr(), large.data_ptr()]
    del small, large
    assert [spare_memory.take(like, COUNT).data_ptr(), spare_memory.take(like, 2 * COUNT).data_ptr()] == places
    monkeypatch.setattr(spare_memory, "MOST", 10 * COUNT)
    del_me = spare_memory.take(like, 3 * COUNT)  # more than may be held: it goes, and what is there stays
    assert spare_memory.held() < 10 * COUNT
    del del_me
    assert 0 < spare_memory.held() < 10 * COUNT


def test_small_pieces_are_torchs_own():
    spare_memory.take(torch.empty(0), 100)
    assert spare_memory.held() == 0
