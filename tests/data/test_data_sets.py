"""The real data sets are the published ones, in the shapes and types the library promises."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch

from wirebound_lab import data
from wirebound_lab.data import mnist as digits_module


def counts(labels: torch.Tensor) -> list[int]:
    return torch.bincount(labels, minlength=10).tolist()


def test_mnist_is_the_published_one(mnist: data.Dataset) -> None:
    assert mnist.train_x.shape == (60000, 28, 28)
    assert mnist.test_x.shape == (10000, 28, 28)
    assert mnist.train_x.dtype == mnist.test_x.dtype == torch.uint8
    assert mnist.train_y.dtype == mnist.test_y.dtype == torch.int64
    assert counts(mnist.train_y) == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert counts(mnist.test_y) == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    inputs = mnist.inputs("train", flatten=True)
    assert inputs.shape == (60000, 784)
    assert inputs.mean().item() == pytest.approx(0.1307, abs=5e-5)
    assert inputs.std().item() == pytest.approx(0.3081, abs=5e-5)
    assert (mnist.name, mnist.classes, mnist.shape, mnist.features) == ("mnist", 10, (28, 28), 784)


def test_cifar10_is_the_published_one(cifar10: data.Dataset) -> None:
    assert cifar10.train_x.shape == (50000, 3, 32, 32)
    assert cifar10.test_x.shape == (10000, 3, 32, 32)
    assert cifar10.train_x.is_contiguous()
    assert counts(cifar10.train_y) == [5000] * 10
    assert counts(cifar10.test_y) == [1000] * 10
    channels = cifar10.train_x.to(torch.float32).div_(255).transpose(0, 1).reshape(3, -1)
    assert channels.mean(1).tolist() == pytest.approx([0.4914, 0.4822, 0.4465], abs=1e-4)
    assert channels.std(1).tolist() == pytest.approx([0.2470, 0.2435, 0.2616], abs=1e-4)
    assert (cifar10.classes, cifar10.shape, cifar10.features) == (10, (3, 32, 32), 3072)


def test_cifar10_in_the_original_layout_has_the_published_md5(cifar10: data.Dataset) -> None:
    # Not the checksum the library itself uses: the one everybody else publishes.
    def layout(images: torch.Tensor, labels: torch.Tensor) -> bytes:
        rows = [labels.to(torch.uint8).unsqueeze(1), images.reshape(len(images), -1)]
        return torch.cat(rows, dim=1).numpy().tobytes()

    first = layout(cifar10.train_x[:10000], cifar10.train_y[:10000])
    test = layout(cifar10.test_x, cifar10.test_y)
    assert hashlib.md5(first).hexdigest() == "5dd7e06a14cb22eb9f671a540d1b7c25"
    assert hashlib.md5(test).hexdigest() == "803d5f7f4d78ea53de84dbe85f74fb6d"


def test_digits_split_is_stratified_and_fixed() -> None:
    digits = data.load("digits")
    assert digits.train_x.shape == (1437, 8, 8)
    assert digits.test_x.shape == (360, 8, 8)
    train, test = np.array(counts(digits.train_y)), np.array(counts(digits.test_y))
    assert (train + test).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert np.abs(test - (train + test) * 360 / 1797).max() < 1
    again = data.load("digits")
    assert torch.equal(digits.test_x, again.test_x)
    # The split must never move: results are compared across versions.
    assert hashlib.sha256(digits.test_x.numpy().tobytes()).hexdigest()[:16] == "7d0195f20ac237ef"


def test_digits_parts_are_disjoint_and_complete() -> None:
    labels = np.repeat(np.arange(10), 30)
    chosen = digits_module.test_positions(np.concatenate([labels] * 6))
    assert len(chosen) == len(set(chosen.tolist())) == 360


def test_inputs_are_in_zero_to_one_for_every_maximum() -> None:
    digits = data.load("digits")
    grey = digits.inputs("test")
    assert grey.shape == (360, 1, 8, 8)
    assert grey.dtype == torch.float32
    assert (grey.min().item(), grey.max().item()) == (0.0, 1.0)
    assert torch.equal(digits.inputs("test", flatten=True), grey.reshape(360, 64))
    assert torch.equal(digits.to_inputs(digits.test_x[:5]), grey[:5])
    assert digits.test_x.max().item() == 16, "converting must not change the stored images"
    with pytest.raises(data.DataError, match=r"part \(='valid'\) must be"):
        digits.inputs("valid")  # type: ignore[arg-type]


def test_colour_inputs_keep_their_channels(cifar10: data.Dataset) -> None:
    assert cifar10.to_inputs(cifar10.test_x[:7]).shape == (7, 3, 32, 32)
    assert cifar10.to_inputs(cifar10.test_x[:7], flatten=True).shape == (7, 3072)


def test_validation_split_comes_from_training_only() -> None:
    digits = data.load("digits")
    # Write its number into every training image, to see where each one goes.
    numbered = digits.train_x.clone()
    numbers = torch.arange(len(numbered))
    numbered[:, 0, 0], numbered[:, 0, 1] = (numbers // 256).to(torch.uint8), (numbers % 256).to(torch.uint8)
    split = data.split_validation(replaced(digits, numbered), 200, seed=3)

    def who(images: torch.Tensor) -> list[int]:
        return (images[:, 0, 0].long() * 256 + images[:, 0, 1].long()).tolist()

    train, valid = who(split.train_x), who(split.test_x)
    assert len(valid) == 200
    assert sorted(train + valid) == list(range(1437))
    assert train == sorted(train)
    assert valid == sorted(valid)
    assert torch.equal(split.test_y, digits.train_y[valid])
    assert torch.equal(split.train_y, digits.train_y[train])
    assert "seed 3" in split.source
    assert who(data.split_validation(replaced(digits, numbered), 200, seed=3).test_x) == valid
    assert who(data.split_validation(replaced(digits, numbered), 200, seed=4).test_x) != valid


def replaced(dataset: data.Dataset, train_x: torch.Tensor) -> data.Dataset:
    from dataclasses import replace

    return replace(dataset, train_x=train_x)


@pytest.mark.parametrize(("count", "seed"), [(0, 1), (1437, 1), (-5, 1), (10, -1), (10, 2**32)])
def test_validation_split_refuses(count: int, seed: int) -> None:
    with pytest.raises(data.DataError, match=r"(count|seed) \(=-?\d+\) must be in"):
        data.split_validation(data.load("digits"), count, seed)


def test_unknown_name_and_useless_path() -> None:
    assert data.names() == ("mnist", "cifar10", "digits", "speech", "timit", "spoken", "debian", "stdlib")
    with pytest.raises(data.DataError, match=r"data \(='imagenet'\) must be one of mnist, cifar10, digits"):
        data.load("imagenet")
    with pytest.raises(data.DataError, match="must be None for digits"):
        data.load("digits", path="/somewhere")


def test_repr_is_one_line() -> None:
    assert "\n" not in repr(data.load("digits"))
