"""Folders with tiny real models, for pages that run the model again."""

import torch
from tiny_models import WORDS, save_bert
from traces import make_axis

from attnviz.trace import Record, Trace
from attnviz.views import Dense

TEXT = "the cat sat . the cats sat ."


def write_models(folder):
    """An encoder `bert` and a decoder `llama` over the same ten words."""
    save_bert(folder / "bert")
    write_decoder(folder / "llama")
    return folder


def write_decoder(folder):
    import transformers

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.LlamaConfig(
        vocab_size=len(WORDS), num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, **sizes
    )
    folder.mkdir(parents=True)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join(WORDS))
    transformers.BertTokenizerFast(vocab=str(vocabulary)).save_pretrained(folder)


def write_pair(folder):
    """An encoder-decoder `t5` over the same ten words."""
    import transformers

    torch.manual_seed(0)
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 3}
    tokens = {"pad_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": 3}
    config = transformers.T5Config(vocab_size=len(WORDS), **sizes, **tokens)
    transformers.T5ForConditionalGeneration(config).save_pretrained(folder / "t5")
    vocabulary = folder / "t5" / "vocab.txt"
    vocabulary.write_text("\n".join(WORDS))
    names = ["input_ids", "attention_mask"]
    transformers.BertTokenizerFast(vocab=str(vocabulary), model_input_names=names).save_pretrained(folder / "t5")
    return folder


def cross_trace(weights, sources, targets):
    """A trace of cross-attention with the given weights [layers, heads, targets, sources], and of an encoder."""
    views = [Dense(layer[None]) for layer in weights]
    records = [Record(f"cross.{n}", n, "cross", "given", "", view) for n, view in enumerate(views)]
    even = torch.full((1, weights.shape[1], len(sources), len(sources)), 1 / len(sources))
    encoder = Record("encoder.0", 0, "encoder", "given", "", Dense(even))
    axes = {"encoder": (make_axis(sources),), "decoder": (make_axis(targets),)}
    return Trace("pair", [encoder, *records], axes)
