"""A method declares itself: settings, title and size, once; the API's defaults are the declared ones."""

from __future__ import annotations

import inspect

import method_table
import pytest
import torch
from torch import nn

import wirebound as wb
from wirebound.methods import METHODS, RunLength, Setting

API_NAMES = {("set", "fraction"): "zeta", ("set", "replace_every"): None, ("rigl", "replace_every"): None}
API_NAMES |= {("cht", "replace_every"): None, ("cht", "replace_until"): None}
API_NAMES |= {("gse", "replace_every"): None, ("gse", "replace_until"): None}
API_NAMES[("rigl", "replace_until")] = None  # shares of a run whose length the API does not know


@pytest.mark.parametrize("name", METHODS)
def test_declared_defaults_are_those_of_the_api(name):
    method = METHODS[name]
    assert method.name == name
    assert method.title
    parameters = inspect.signature(method.__init__).parameters
    for setting in method.settings:
        assert setting.help
        assert "\n" not in setting.help
        setting.check(setting.default)
        own = API_NAMES.get((name, setting.name), setting.name)
        if own is not None:
            assert parameters[own].default == setting.default, setting.name


@pytest.mark.parametrize("name", METHODS)
def test_from_settings_takes_what_it_knows(name):
    line = method_table.TABLE[name]
    model = method_table.plain_model()
    if not line.plain:
        model = wb.sparsify(model, connectivity=0.4)
    run = {"connectivity": 0.4, "budget": None, "seed": 3, "epochs": 2, "l1": 0.02, "fraction": 0.5, "unknown": 1}
    method = METHODS[name].from_settings(model, torch.optim.SGD(model.parameters(), lr=0.1), run, RunLength(6, 2))
    infos = method_table.take_steps(method, 12)
    assert infos[-1].step == 12
    if any(setting.name == "l1" for setting in method.settings):
        assert set(method.l1) == {0.02}


def test_settings_are_checked():
    model = wb.sparsify(nn.Linear(8, 4), connectivity=0.5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for settings, words in (
        ({"l1": -1.0}, r"l1 \(=-1.0\) must be 'auto' or a finite number >= 0"),
        ({"rewire_every": 0}, "rewire_every"),
        ({"newborns": "all"}, "newborns .='all'. must be one of uniform, share"),
    ):
        with pytest.raises(ValueError, match=words):
            wb.DeepR.from_settings(model, optimizer, settings, RunLength())
    with pytest.raises(ValueError, match=r"theta_min \(=0.5\) must be a finite number < 0"):
        next(s for s in wb.SoftDeepR.settings if s.name == "theta_min").check(0.5)
    with pytest.raises(ValueError, match=r"rate \(=2.0\) must be in \[0, 1\]"):
        next(s for s in wb.ConstantRate.settings if s.name == "rate").check(2.0)
    with pytest.raises(ValueError, match="must know how many steps"):
        wb.MagnitudePruning.from_settings(model, optimizer, {}, RunLength())


def test_a_name_is_registered_once():
    class Mine(wb.DeepR):
        name = "deep-r"

    with pytest.raises(ValueError, match=r"name of Mine \(='deep-r'\) is taken by DeepR"):
        wb.methods.register(Mine)

    try:

        @wb.methods.register
        class Hotter(wb.DeepR):
            name = "hotter"
            title = "Hotter"
            settings = (*wb.DeepR.settings, Setting("boost", "float", 2.0, "factor on the noise"))

        assert METHODS["hotter"] is Hotter
        wb.methods.register(Hotter)  # again, as a module that is loaded twice does
    finally:
        METHODS.pop("hotter", None)
