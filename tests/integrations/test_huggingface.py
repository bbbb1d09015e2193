"""Hugging Face's own Trainer on a small model made from its config: the budget, and resuming from its checkpoints."""

import pytest
import torch
from transformers import (
    DistilBertConfig,
    DistilBertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

import wirebound as wb
from wirebound.integrations.huggingface import BudgetCallback


class Sequences(torch.utils.data.Dataset):
    """Sequences of 6 tokens; the label says whether the first is a high one."""

    def __init__(self):
        self.tokens = torch.randint(0, 20, (64, 6), generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, number):
        tokens = self.tokens[number]
        return {"input_ids": tokens, "attention_mask": torch.ones(6, dtype=torch.long), "labels": int(tokens[0] >= 10)}


class _StopAt(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            control.should_save = True
            control.should_training_stop = True


def _model():
    torch.manual_seed(0)
    config = DistilBertConfig(vocab_size=20, dim=16, hidden_dim=32, n_heads=2, n_layers=1, max_position_embeddings=8)
    return wb.sparsify(DistilBertForSequenceClassification(config), connectivity=0.3, seed=1)


def _trainer(folder, model, callbacks=(), **settings):
    method = wb.DeepR(model, torch.optim.AdamW(model.parameters(), lr=0.01), l1=0.02)
    counts = []

    def counted(*_):
        (wiring,) = wb.wirings(model)
        wiring.check()
        counts.append(wiring.active)

    method.optimizer.register_step_post_hook(counted)
    arguments = TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=8, use_cpu=True, report_to="none", disable_tqdm=True,
        logging_steps=2, seed=3, **settings,
    )  # fmt: skip
    trainer = Trainer(
        model=model, args=arguments, train_dataset=Sequences(), optimizers=(method.optimizer, None),
        callbacks=list(callbacks),
    )  # fmt: skip
    return trainer, method, counts


def _same(a, b):
    pairs = zip(a.state_dict().values(), b.state_dict().values(), strict=True)
    return all(torch.equal(one, other) for one, other in pairs)


def test_training_keeps_the_budget_and_resuming_repeats_the_bits(tmp_path):
    whole = _model()
    trainer, method, counts = _trainer(tmp_path / "whole", whole, [BudgetCallback()], max_steps=12, save_strategy="no")
    trainer.train()
    budget = wb.wirings(whole)[0].budget
    assert counts == [budget] * 12
    logged = [entry for entry in trainer.state.log_history if "active" in entry]
    assert logged
    assert all(entry["active"] == budget for entry in logged)
    assert any(entry["rewired"] > 0 for entry in logged)

    first = _model()
    # The lr schedule spans all 12 steps; training stops after the checkpoint of step 6.
    trainer, _, _ = _trainer(tmp_path / "part", first, max_steps=12, save_steps=6, save_strategy="steps")
    trainer.add_callback(_StopAt(6))
    trainer.train()
    second = _model()
    trainer, method, counts = _trainer(tmp_path / "part", second, max_steps=12, save_strategy="no")
    trainer.train(resume_from_checkpoint=str(tmp_path / "part" / "checkpoint-6"))
    assert method.steps == 12
    assert counts == [budget] * 6
    assert _same(whole, second)
    assert not _same(first, second)


def test_accumulated_gradients_make_one_step(tmp_path):
    trainer, method, counts = _trainer(tmp_path, _model(), max_steps=3, gradient_accumulation_steps=2, save_strategy="no")
    trainer.train()
    assert method.steps == len(counts) == 3


def test_an_optimiser_without_the_method_is_refused(tmp_path):
    model = _model()
    arguments = TrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to="none", max_steps=1, disable_tqdm=True)
    trainer = Trainer(model=model, args=arguments, train_dataset=Sequences(), callbacks=[BudgetCallback()])
    with pytest.raises(ValueError, match="has no method attached"):
        trainer.train()
