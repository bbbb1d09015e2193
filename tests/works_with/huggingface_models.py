"""Tiny versions of Hugging Face models, made from their configs: no files, no downloads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as hf
from torch import nn

Made = tuple[nn.Module, dict[str, Any]]

_draw = torch.Generator().manual_seed(3)
TOKENS = torch.randint(3, 30, (2, 6), generator=_draw)
IMAGES = torch.rand(2, 3, 32, 32, generator=_draw)
SOUND = torch.randn(2, 400, generator=_draw)

TEXT = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
QUIET = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
HEADS = {"num_key_value_heads": 1, "max_position_embeddings": 16}
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8}
VISION = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip
SEQ2SEQ = {
    "vocab_size": 40, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "max_position_embeddings": 16,
    "decoder_start_token_id": 1, **QUIET,
}  # fmt: skip
SPEECH = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24, "conv_dim": (8, 8),
    "conv_kernel": (10, 3), "conv_stride": (5, 2), "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2,
    "num_feat_extract_layers": 2, "layerdrop": 0.0, "mask_time_prob": 0.0, "vocab_size": 40,
}  # fmt: skip


def of(kind: str, inputs: dict[str, Any], **settings: Any) -> Callable[[], Made]:
    """The model without a head of a kind that transformers knows by its name."""

    def make() -> Made:
        torch.manual_seed(0)
        return hf.AutoModel.from_config(hf.AutoConfig.for_model(kind, **settings)), inputs

    return make


def text(kind: str, **settings: Any) -> Callable[[], Made]:
    return of(kind, {"input_ids": TOKENS}, **{**TEXT, **settings})


def decoder(kind: str, **settings: Any) -> Callable[[], Made]:
    return of(kind, {"input_ids": TOKENS, "use_cache": False}, **{**TEXT, **QUIET, **settings})


def vision(kind: str, **settings: Any) -> Callable[[], Made]:
    return of(kind, {"pixel_values": IMAGES}, **{**VISION, **settings})


def seq2seq(kind: str, **settings: Any) -> Callable[[], Made]:
    inputs = {"input_ids": TOKENS, "decoder_input_ids": TOKENS.flip(1), "use_cache": False}
    return of(kind, inputs, **{**SEQ2SEQ, **settings})


def speech(kind: str, **settings: Any) -> Callable[[], Made]:
    return of(kind, {"input_values": SOUND}, **{**SPEECH, **settings})


def two_towers(kind: str, **settings: Any) -> Callable[[], Made]:
    """Text beside images."""
    words = {**TEXT, "max_position_embeddings": 16, **QUIET}
    return of(
        kind, {"input_ids": TOKENS, "pixel_values": IMAGES}, text_config=words, vision_config=VISION, **settings
    )


def with_head(cls: str, config: str, inputs: dict[str, Any], **settings: Any) -> Callable[[], Made]:
    """A model with the head and the loss of its task."""

    def make() -> Made:
        torch.manual_seed(0)
        return getattr(hf, cls)(getattr(hf, config)(**settings)), inputs

    return make


ENCODERS = {
    "bert": text("bert"),
    "roberta": text("roberta", max_position_embeddings=16),
    "xlm-roberta": text("xlm-roberta", max_position_embeddings=16),
    "camembert": text("camembert", max_position_embeddings=16),
    "distilbert": text("distilbert", dim=16, hidden_dim=24),
    "albert": text("albert", embedding_size=8),
    "deberta": text("deberta", relative_attention=True, pos_att_type=["p2c", "c2p"], max_position_embeddings=16),
    "deberta-v2": text("deberta-v2", relative_attention=True, pos_att_type=["p2c", "c2p"], max_position_embeddings=16),
    "electra": text("electra", embedding_size=8),
    "mpnet": text("mpnet"),
    "mobilebert": text("mobilebert", embedding_size=8, intra_bottleneck_size=8, num_feedforward_networks=1),
    "convbert": text("convbert", embedding_size=16, conv_kernel_size=3),
    "funnel": with_head(
        "FunnelModel", "FunnelConfig", {"input_ids": TOKENS}, vocab_size=40, block_sizes=[1], d_model=16, n_head=2,
        d_head=8, d_inner=24, num_decoder_layers=1,
    ),
    "fnet": text("fnet"),
    "longformer": text("longformer", attention_window=[4], max_position_embeddings=32),
    "big_bird": text("big_bird", attention_type="original_full"),
    "squeezebert": text("squeezebert", embedding_size=16),
    "modernbert": text("modernbert", **QUIET, cls_token_id=1, sep_token_id=2),
    "esm": text("esm", pad_token_id=0, mask_token_id=39, max_position_embeddings=16),
    "roformer": text("roformer", embedding_size=16),
    "layoutlm": text("layoutlm"),
}  # fmt: skip
DECODERS = {
    "gpt2": decoder("gpt2"),
    "openai-gpt": of("openai-gpt", {"input_ids": TOKENS}, n_embd=16, n_layer=1, n_head=2, vocab_size=40),
    "gpt_neo": decoder("gpt_neo", num_layers=1, attention_types=[[["global"], 1]], num_heads=2),
    "gpt_neox": decoder("gpt_neox"),
    "gptj": decoder("gptj", rotary_dim=4),
    "codegen": of(
        "codegen", {"input_ids": TOKENS, "use_cache": False}, vocab_size=40, n_embd=32, n_layer=1, n_head=4, rotary_dim=4,
        n_positions=16,
    ),
    "opt": decoder("opt", ffn_dim=24, word_embed_proj_dim=16, max_position_embeddings=16),
    "bloom": decoder("bloom"),
    "mpt": decoder("mpt", d_model=16, n_heads=2, n_layers=1, max_seq_len=16),
    "falcon": decoder("falcon"),
    "llama": decoder("llama", **HEADS),
    "mistral": decoder("mistral", **HEADS),
    "qwen2": decoder("qwen2", **HEADS),
    "qwen3": decoder("qwen3", **HEADS, head_dim=8),
    "gemma": decoder("gemma", **HEADS, head_dim=8),
    "gemma2": decoder("gemma2", **HEADS, head_dim=8),
    "gemma3_text": decoder("gemma3_text", **HEADS, head_dim=8),
    "phi": decoder("phi"),
    "phi3": decoder("phi3", **HEADS),
    "stablelm": decoder("stablelm", **HEADS),
    "starcoder2": decoder("starcoder2", **HEADS),
    "cohere": decoder("cohere", **HEADS),
    "olmo": decoder("olmo", **HEADS),
    "olmo2": decoder("olmo2", **HEADS),
    "granite": decoder("granite", **HEADS),
    "smollm3": decoder("smollm3", **HEADS),
    "xglm": decoder("xglm", d_model=16, attention_heads=2, num_layers=1, ffn_dim=24, max_position_embeddings=16),
    "biogpt": decoder("biogpt", max_position_embeddings=16),
    "mixtral": decoder("mixtral", **HEADS, num_local_experts=4, num_experts_per_tok=2),
    "qwen2_moe": decoder("qwen2_moe", **HEADS, **MOE, shared_expert_intermediate_size=8),
    "olmoe": decoder("olmoe", **HEADS, **MOE),
    "gpt_oss": decoder("gpt_oss", **HEADS, head_dim=8, num_local_experts=4, num_experts_per_tok=2),
    "mamba": decoder("mamba", state_size=4, time_step_rank=4),
    "mamba2": decoder("mamba2", state_size=8, head_dim=8, num_heads=4, n_groups=1, expand=2, chunk_size=4),
    "rwkv": decoder("rwkv", attention_hidden_size=16, num_hidden_layers=2, rescale_every=0),
}  # fmt: skip
SEQUENCES = {
    "t5": seq2seq("t5", d_kv=8, d_ff=24, num_layers=1, num_heads=2),
    "mt5": seq2seq("mt5", d_kv=8, d_ff=24, num_layers=1, num_heads=2),
    "bart": seq2seq("bart"),
    "mbart": seq2seq("mbart"),
    "marian": seq2seq("marian"),
    "pegasus": seq2seq("pegasus"),
    "m2m_100": seq2seq("m2m_100"),
    "blenderbot": seq2seq("blenderbot"),
    "led": seq2seq("led", attention_window=[4], max_encoder_position_embeddings=16, max_decoder_position_embeddings=16),
    "prophetnet": of(
        "prophetnet", {"input_ids": TOKENS, "decoder_input_ids": TOKENS, "use_cache": False}, vocab_size=40,
        hidden_size=16, num_encoder_layers=1, num_decoder_layers=1, num_encoder_attention_heads=2,
        num_decoder_attention_heads=2, encoder_ffn_dim=24, decoder_ffn_dim=24, max_position_embeddings=16, **QUIET,
    ),
}  # fmt: skip
IMAGES_ONLY = {
    "vit": vision("vit"),
    "deit": vision("deit"),
    "beit": vision("beit"),
    "dinov2": vision("dinov2"),
    "vit_mae": vision("vit_mae", decoder_hidden_size=16, decoder_num_attention_heads=2, decoder_num_hidden_layers=1, decoder_intermediate_size=24),
    "vit_msn": vision("vit_msn"),
    "yolos": vision("yolos", image_size=(32, 32), num_detection_tokens=3),
    "swin": of("swin", {"pixel_values": IMAGES}, image_size=32, patch_size=4, embed_dim=8, depths=[1, 1], num_heads=[1, 2], window_size=4),
    "swinv2": of("swinv2", {"pixel_values": IMAGES}, image_size=32, patch_size=4, embed_dim=8, depths=[1, 1], num_heads=[1, 2], window_size=4),
    "convnext": of("convnext", {"pixel_values": IMAGES}, hidden_sizes=[8, 12], depths=[1, 1], num_stages=2),
    "convnextv2": of("convnextv2", {"pixel_values": IMAGES}, hidden_sizes=[8, 12], depths=[1, 1], num_stages=2),
    "resnet": of("resnet", {"pixel_values": IMAGES}, embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1]),
    "regnet": of("regnet", {"pixel_values": IMAGES}, embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], groups_width=4),
    "mobilenet_v1": of("mobilenet_v1", {"pixel_values": IMAGES}, depth_multiplier=0.1, min_depth=4),
    "mobilenet_v2": of("mobilenet_v2", {"pixel_values": IMAGES}, depth_multiplier=0.1, min_depth=4, depth_divisible_by=4),
    "efficientnet": of(
        "efficientnet", {"pixel_values": IMAGES}, image_size=32, width_coefficient=0.2, depth_coefficient=0.3,
        hidden_dim=256,
    ),
    "segformer": of("segformer", {"pixel_values": IMAGES}, hidden_sizes=[8, 16], depths=[1, 1], num_attention_heads=[1, 2], num_encoder_blocks=2, sr_ratios=[2, 1], patch_sizes=[3, 3], strides=[2, 2], mlp_ratios=[2, 2]),
    "pvt": of("pvt", {"pixel_values": IMAGES}, image_size=32, hidden_sizes=[8, 16], depths=[1, 1], num_attention_heads=[1, 2], num_encoder_blocks=2, sequence_reduction_ratios=[2, 1], patch_sizes=[4, 2], strides=[4, 2], mlp_ratios=[2, 2]),
    "poolformer": of("poolformer", {"pixel_values": IMAGES}, hidden_sizes=[8, 12, 16, 16], depths=[1, 1, 1, 1]),
    "mobilevit": of("mobilevit", {"pixel_values": IMAGES}, image_size=32, hidden_sizes=[16, 16, 16], neck_hidden_sizes=[4, 4, 8, 8, 16, 16, 16]),
    "bit": of("bit", {"pixel_values": IMAGES}, embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], num_groups=4),
    "focalnet": of("focalnet", {"pixel_values": IMAGES}, image_size=32, patch_size=4, embed_dim=8, hidden_sizes=[8, 16], depths=[1, 1], focal_levels=[1, 1], focal_windows=[3, 3]),
}  # fmt: skip
OTHERS = {
    "clip": two_towers("clip", projection_dim=8),
    "siglip": two_towers("siglip"),
    "wav2vec2": speech("wav2vec2"),
    "hubert": speech("hubert"),
    "wavlm": speech("wavlm"),
    "unispeech": speech("unispeech"),
    "data2vec-audio": speech("data2vec-audio"),
    "sew": speech("sew", squeeze_factor=1),
    "whisper": of(
        "whisper", {"input_features": torch.randn(2, 8, 20, generator=_draw), "decoder_input_ids": TOKENS, "use_cache": False},
        **{**SEQ2SEQ, "num_mel_bins": 8, "max_source_positions": 10, "max_target_positions": 16},
    ),
    "audio-spectrogram-transformer": of(
        "audio-spectrogram-transformer", {"input_values": torch.randn(2, 20, 16, generator=_draw)},
        **{**VISION, "patch_size": 4, "max_length": 20, "num_mel_bins": 16, "frequency_stride": 4, "time_stride": 4},
    ),
    "time_series_transformer": of(
        "time_series_transformer",
        {
            "past_values": torch.rand(2, 9, generator=_draw), "past_time_features": torch.rand(2, 9, 1, generator=_draw),
            "past_observed_mask": torch.ones(2, 9), "future_values": torch.rand(2, 4, generator=_draw),
            "future_time_features": torch.rand(2, 4, 1, generator=_draw), "use_cache": False,
        },
        prediction_length=4, context_length=6, lags_sequence=[1, 2, 3], num_time_features=1, d_model=16,
        encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=24,
        decoder_ffn_dim=24,
    ),
    "patchtst": of(
        "patchtst", {"past_values": torch.rand(2, 16, 3, generator=_draw)}, num_input_channels=3, context_length=16,
        patch_length=4, patch_stride=4, d_model=16, num_attention_heads=2, num_hidden_layers=1, ffn_dim=24,
    ),
    "patchtsmixer": of(
        "patchtsmixer", {"past_values": torch.rand(2, 16, 3, generator=_draw)}, num_input_channels=3, context_length=16,
        patch_length=4, patch_stride=4, d_model=16, num_layers=1,
    ),
    "decision_transformer": of(
        "decision_transformer",
        {
            "states": torch.rand(2, 4, 5, generator=_draw), "actions": torch.rand(2, 4, 2, generator=_draw),
            "rewards": torch.rand(2, 4, 1, generator=_draw), "returns_to_go": torch.rand(2, 4, 1, generator=_draw),
            "timesteps": torch.arange(4).expand(2, 4), "attention_mask": torch.ones(2, 4),
        },
        state_dim=5, act_dim=2, hidden_size=16, n_layer=1, n_head=2, max_ep_len=10,
    ),
    "bert, classified": with_head(
        "BertForSequenceClassification", "BertConfig", {"input_ids": TOKENS, "labels": torch.tensor([0, 1])}, **TEXT
    ),
    "vit, classified": with_head(
        "ViTForImageClassification", "ViTConfig", {"pixel_values": IMAGES, "labels": torch.tensor([0, 1])}, **VISION
    ),
}  # fmt: skip
# What sparsify is told: modules whose weight is computed by themselves are named, or left as they are.
EXPERTS = {"include": [nn.Linear, "*.gate_up_proj", "*.down_proj"]}
WEIGHT_NORM = {"exclude": "encoder.pos_conv_embed"}
OPTIONS: dict[str, dict[str, Any]] = {
    "falcon": {"include": "h.*"},
    "bit": {"include": ["embedder", "encoder"]},
    **dict.fromkeys(("mixtral", "qwen2_moe", "olmoe", "gpt_oss"), EXPERTS),
    **dict.fromkeys(("wav2vec2", "hubert", "wavlm", "unispeech", "sew"), WEIGHT_NORM),
}
ALL = {**ENCODERS, **DECODERS, **SEQUENCES, **IMAGES_ONLY, **OTHERS}
