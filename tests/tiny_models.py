"""Tiny models with random weights, saved as folders, wheels and GGUF files the way the real ones come."""

import hashlib
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attnviz.models import Bundled

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "##s", ".")


def bert_config(**changes: Any) -> Any:
    from transformers import BertConfig

    numbers = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    return BertConfig(vocab_size=len(WORDS), max_position_embeddings=32, **numbers | changes)


def save_bert(folder: Path, kind: str = "BertModel", **changes: Any) -> Path:
    """A folder with config.json, model.safetensors and a tokenizer."""
    import transformers

    torch.manual_seed(0)
    folder.mkdir(parents=True, exist_ok=True)
    getattr(transformers, kind)(bert_config(**changes)).save_pretrained(folder)
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join(WORDS))
    transformers.BertTokenizerFast(vocab=str(vocabulary)).save_pretrained(folder)
    return folder


def wheel(folder: Path, files: dict[str, bytes], name: str = "tiny") -> Bundled:
    """A wheel of these files in `folder`, and the entry that describes it."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        for member, content in files.items():
            archive.writestr(member, content)
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Dist: absent\n"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    sizes = {"wheel_bytes": path.stat().st_size, "installed_bytes": sum(map(len, files.values()))}
    wanted = tuple(member for member in files if "/model/" in member)
    return Bundled(name, name, "1.0", digest, files=wanted, layers=2, heads=4, summary="a test", **sizes)


def llama() -> Any:
    """Two layers, 4 query heads on 2 key/value heads of size 8, vocabulary of `byte_tokens`."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    numbers = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(
        vocab_size=len(byte_tokens()[0]),
        num_key_value_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        rms_norm_eps=1e-5,
        bos_token_id=0,
        eos_token_id=0,
        **numbers,
    )
    return LlamaForCausalLM(config).eval()


def byte_tokens() -> tuple[list[str], list[str]]:
    """A byte-level vocabulary with three merges, and those merges."""
    from tokenizers.pre_tokenizers import ByteLevel

    return ["<|end|>", *sorted(ByteLevel.alphabet()), "ĠĠ", "th", "the"], ["Ġ Ġ", "t h", "th e"]


def save_gguf(path: Path, model: Any, pre: str = "smollm") -> Path:
    """The model as a float32 GGUF file, laid out as llama.cpp's converter does."""
    import gguf

    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    _add_tokenizer(writer, pre)
    for name, tensor in model.state_dict().items():
        if name != "lm_head.weight":
            writer.add_tensor(_gguf_name(name), _gguf_layout(name, tensor, config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tokenizer(writer: Any, pre: str) -> None:
    tokens, merges = byte_tokens()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3, *[1] * (len(tokens) - 1)])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    writer.add_add_bos_token(False)


def _gguf_name(name: str) -> str:
    parts = {
        "model.embed_tokens": "token_embd",
        "model.norm": "output_norm",
        "model.layers": "blk",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }
    for ours, theirs in parts.items():
        name = name.replace(ours, theirs)
    return name


def _gguf_layout(name: str, tensor: torch.Tensor, config: Any) -> "np.ndarray[Any, Any]":
    """llama.cpp rotates neighbouring pairs of a head, transformers its two halves: rows of q and k are interleaved."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for part, count in heads.items():
        if part in name:
            tensor = tensor.unflatten(0, (count, 2, -1)).transpose(1, 2).flatten(0, 2)
    return tensor.numpy().copy()
