"""The arithmetic of `attnviz estimate`, against hand-worked cases and what a run really keeps."""

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_models import bert_config, save_bert

from attnviz.cli.entry import run
from attnviz.estimate import AttentionShape, estimate, readable, shape_of

GIB = 2**30


def test_one_map_of_32768_tokens() -> None:
    result = estimate(AttentionShape(1, 1, 1, 64), 32768)
    assert (result.map_fp16, result.map_fp32) == (2 * GIB, 4 * GIB)
    assert (result.eager_fp16, result.eager_fp32) == (2 * GIB, 4 * GIB)


def test_what_attnviz_keeps_by_hand() -> None:
    """2 calls of 3 tokens: per token 4 queries and 2 keys of 8 floats, and 4 heads x (logsumexp, 6 floats, 1 int64)."""
    assert estimate(AttentionShape(2, 4, 2, 8), 3).attnviz == 2 * 3 * ((4 + 2) * 8 * 4 + 4 * (4 + 24 + 8))


def test_bytes_agree_with_the_tensors_of_a_kernel_call() -> None:
    import torch

    from attnviz_kernels import Emit, attend

    query, key = torch.ones(1, 4, 5, 8), torch.ones(1, 2, 5, 8)
    attended = attend(query, key, key, emit=Emit(statistics=True))
    kept = [query, key, attended.logsumexp, *vars(attended.statistics).values()]
    assert estimate(AttentionShape(1, 4, 2, 8), 5).attnviz == sum(tensor.nbytes for tensor in kept)


def shapes() -> list[tuple[Any, AttentionShape]]:
    import transformers as hf

    llama = hf.LlamaConfig(hidden_size=64, num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=2)
    hybrid = hf.Qwen3NextConfig(num_hidden_layers=8, num_attention_heads=4, num_key_value_heads=2, head_dim=32)
    seq2seq = hf.T5Config(num_layers=2, num_decoder_layers=3, num_heads=4, d_kv=16)
    bart = hf.BartConfig(d_model=64, encoder_layers=2, decoder_layers=3, encoder_attention_heads=4)
    clip = hf.LlavaConfig(text_config=llama)
    return [
        (bert_config(), AttentionShape(2, 4, 4, 4)),
        (llama, AttentionShape(3, 8, 2, 8)),
        (hybrid, AttentionShape(2, 4, 2, 32)),
        (seq2seq, AttentionShape(2 + 2 * 3, 4, 4, 16)),
        (bart, AttentionShape(2 + 2 * 3, 4, 4, 16)),
        (clip, AttentionShape(3, 8, 2, 8)),
    ]


@pytest.mark.parametrize(("config", "expected"), shapes(), ids=lambda value: type(value).__name__)
def test_shape_of_a_configuration(config: Any, expected: AttentionShape) -> None:
    assert shape_of(config) == expected


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (2 * GIB, "2.0 GiB"), (3 * 1024**4, "3.0 TiB")],
)
def test_bytes_in_words(amount: int, text: str) -> None:
    assert readable(amount) == text


def test_command_needs_no_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = save_bert(tmp_path / "bert")
    (folder / "model.safetensors").unlink()
    assert run(["estimate", str(folder), "--length", "32768"]) == 0
    out = capsys.readouterr().out
    assert "for one text" in out.splitlines()[0]
    assert "32,768 tokens" in out.splitlines()[0]
    assert "one head's map, float16" in out.splitlines()[1]
    assert "2.0 GiB" in out.splitlines()[1]
    assert out.splitlines()[-1].endswith("bert itself reads 32 tokens at most")
    assert run(["estimate", str(folder), "--length", "32"]) == 0
    assert "at most" not in capsys.readouterr().out


def test_command_for_machines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["estimate", str(save_bert(tmp_path / "bert")), "--length", "100", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["calls"], result["heads"], result["length"]) == (2, 4, 100)
    assert result["eager_fp32"] == 100 * 100 * 4 * 2 * 4


def test_unknown_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["estimate", "minlm", "--length", "5"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith('error: no model "minlm": ')
    assert "did you mean minilm?" in err
