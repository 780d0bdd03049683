"""Generation: prefill and decoding steps are one map, equal to one eager pass over the whole sequence."""

import inspect

import pytest
import torch
from recording.oracle import build, inputs, names, whole

import attnviz
from attnviz.errors import RecordingError

CAUSAL = (
    "llama", "qwen2", "qwen3", "olmo2", "granite", "phi3", "starcoder2", "cohere", "smollm3", "diffllama", "gemma",
    "gpt2", "gpt_neo", "gpt_neox", "bloom", "mpt", "falcon", "mistral_window4", "gemma2", "gemma3_text", "gpt_oss",
    "qwen3_moe", "deepseek_v3", "qwen3_next", "llama4_text", "jamba",
)  # fmt: skip
PAIRS = ("bart", "mbart", "marian", "t5", "led")


def generating(name, **overrides):
    """The model with a language model head on top of the tiny one."""
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

    auto = AutoModelForSeq2SeqLM if name in PAIRS else AutoModelForCausalLM
    base = build(name, **overrides)
    model = auto.from_config(base.config).eval()
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")
    torch.manual_seed(1)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if parameter.ndim >= 2:
                parameter.mul_(6.0)
            if "sinks" in key:
                parameter.copy_(torch.randn(parameter.shape))
    return model


@torch.no_grad()
def eager_pass(model, **given):
    """{kind: [weights]} of one eager pass."""
    from recording.oracle import KINDS

    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    if model.config._attn_implementation != "eager":
        model.config._attn_implementation_internal = "eager"  # models that compute by hand
    out = model(**given, output_attentions=True)
    model.config._attn_implementation = before
    kinds = {}
    for key, kind in KINDS.items():
        found = [one for one in out.get(key) or () if one is not None]
        if found:
            kinds[kind] = found
    return kinds


def cached(model, cache):
    """The cache under the name that this release of transformers has for it."""
    names = inspect.signature(model.forward).parameters
    return {"cache" if "cache" in names else "past_key_values": cache}


def assert_same(trace, own, rows, sequence=0, bound=1e-4):
    """The first `rows` rows of the trace are those of the eager pass."""
    for layer, weights in zip(trace.layers, own, strict=True):
        found = whole(trace.sequence(sequence), layer)
        assert found.shape[2] == rows
        cols = found.shape[3]
        assert (found - weights[sequence : sequence + 1, :, :rows, :cols]).abs().max() < bound


CACHED = [(name, cache) for name in names() if name in CAUSAL for cache in ("dynamic", "static")]


# the local layers of GPT-Neo attend to the empty places of a static cache: refused
@pytest.mark.parametrize(("name", "cache"), [case for case in CACHED if case != ("gpt_neo", "static")])
@torch.no_grad()
def test_generate_joins_prefill_and_steps(name, cache):
    model = generating(name)
    prompt = inputs(name)["input_ids"][:, :6]
    options = {"cache_implementation": "static"} if cache == "static" else {}
    expected = model.generate(prompt, max_new_tokens=5, min_new_tokens=5, do_sample=False, **options)
    with attnviz.record(model) as trace:
        sequence = model.generate(prompt, max_new_tokens=5, min_new_tokens=5, do_sample=False, **options)
    assert torch.equal(sequence, expected)
    own = eager_pass(model, input_ids=sequence, use_cache=False)
    assert_same(trace, own["self"], rows=10)
    if model.config.use_cache:
        assert trace.every_head()[0].steps == (0,) * 6 + (1, 2, 3, 4)
    assert [str(token) for token in trace.tokens] == [str(int(number)) for number in sequence[0, :-1]]
    table = trace.heads()
    assert len(table) == len(trace.every_head())


@pytest.mark.parametrize("name", [name for name in names() if name in CAUSAL and name != "jamba"])
@torch.no_grad()
def test_a_cache_filled_in_two_chunks(name):
    """Jamba is left out: its state space layers start anew with every chunk."""
    from transformers import DynamicCache

    model = generating(name)
    ids = inputs(name)["input_ids"]
    cache = DynamicCache(config=model.config)
    with attnviz.record(model) as trace:
        model(ids[:, :8], use_cache=True, **cached(model, cache))
        model(ids[:, 8:], use_cache=True, **cached(model, cache))
    own = eager_pass(model, input_ids=ids, use_cache=False)
    assert_same(trace, own["self"], rows=12)
    assert trace.every_head()[0].steps == (0,) * 8 + (1,) * 4


@pytest.mark.parametrize("pair", ["bart", "t5", "led"])
@torch.no_grad()
def test_encoder_decoder_generation_has_three_kinds(pair):
    model = generating(pair)
    source = inputs(pair)["input_ids"]
    with attnviz.record(model) as trace:
        target = model.generate(source, max_new_tokens=5, min_new_tokens=5, do_sample=False)
    own = eager_pass(model, input_ids=source, decoder_input_ids=target, use_cache=False)
    rows = target.shape[1] - 1
    assert_same(trace.decoder, own["decoder"], rows)
    assert_same(trace.cross, own["cross"], rows)
    assert trace.encoder.record(0).view.shape[2] == 12
    assert [token.id for token in trace.cross[0, 0].rows] == target[0, :-1].tolist()
    assert [token.id for token in trace.cross[0, 0].cols] == source[0].tolist()


@pytest.mark.parametrize("case", ["llama", "mistral_window4", "gemma2", "gpt_oss", "bloom"])
@torch.no_grad()
def test_beams_are_those_of_the_returned_sequences(case):
    model = generating(case)
    prompt = inputs(case)["input_ids"][:, :6]
    options = {"max_new_tokens": 6, "num_beams": 4, "num_return_sequences": 3, "do_sample": False}
    with attnviz.record(model) as trace:
        sequences = model.generate(prompt, **options)
    assert trace.batch_size == 3
    for index, sequence in enumerate(sequences):
        part = trace.sequence(index)
        rows = len(part.tokens)
        assert [token.id for token in part.tokens] == sequence[:rows].tolist()
        assert rows >= 6
        own = eager_pass(model, input_ids=sequence[None, :rows], use_cache=False)
        for layer, weights in zip(part.layers, own["self"], strict=True):
            assert (whole(part, layer) - weights).abs().max() < 1e-4


@torch.no_grad()
def test_beams_of_an_encoder_decoder():
    model = generating("bart")
    source = inputs("bart")["input_ids"].repeat(2, 1)
    source[1] = source[1].flip(0)
    with attnviz.record(model) as trace:
        sequences = model.generate(source, max_new_tokens=6, num_beams=3, num_return_sequences=2, do_sample=False)
    assert trace.batch_size == 4
    for index, target in enumerate(sequences):
        part = trace.sequence(index)
        rows = len(part.decoder.tokens)
        given = {"input_ids": source[index // 2][None], "decoder_input_ids": target[None, :rows]}
        own = eager_pass(model, **given, use_cache=False)
        for kind in ("encoder", "decoder", "cross"):
            only = part.only(kind)
            for layer, weights in zip(only.layers, own[kind], strict=True):
                assert (whole(only, layer) - weights).abs().max() < 1e-4


@torch.no_grad()
def test_sampled_sequences_end_where_they_end():
    model = generating("llama")
    prompt = torch.randint(5, 90, (3, 6), generator=torch.Generator().manual_seed(3))
    real = torch.ones_like(prompt)
    prompt[1, :2], real[1, :2] = 0, 0
    torch.manual_seed(0)
    with attnviz.record(model) as trace:
        sampling = {"max_new_tokens": 30, "do_sample": True, "temperature": 50.0, "eos_token_id": [*range(2, 12)]}
        sequences = model.generate(prompt, attention_mask=real, **sampling)
    ends = []
    for index, sequence in enumerate(sequences):
        over = ((sequence[6:] >= 2) & (sequence[6:] < 12)).nonzero()
        end = 6 + int(over[0]) + 1 if len(over) else len(sequence)
        ends.append(end)
        start = 2 if index == 1 else 0
        tokens = trace.sequence(index).tokens
        assert [token.id for token in tokens] == sequence[start : min(end, len(sequence) - 1)].tolist()
    assert len(set(ends)) > 1


@torch.no_grad()
def test_rows_of_a_recording_that_begins_late():
    from transformers import DynamicCache

    model = generating("llama")
    ids = inputs("llama")["input_ids"]
    cache = DynamicCache(config=model.config)
    model(ids[:, :8], **cached(model, cache))
    with attnviz.record(model) as trace:
        model(ids[:, 8:], **cached(model, cache))
    own = eager_pass(model, input_ids=ids, use_cache=False)
    assert trace[0, 0].shape == (4, 12)
    assert [token.id for token in trace[0, 0].rows] == ids[0, 8:].tolist()
    for layer, weights in zip(trace.layers, own["self"], strict=True):
        assert (whole(trace, layer) - weights[:, :, 8:]).abs().max() < 1e-5


@torch.no_grad()
def test_steps_that_were_not_recorded_are_refused():
    from transformers import DynamicCache

    model = generating("llama")
    ids = inputs("llama")["input_ids"]
    other = DynamicCache(config=model.config)
    model(ids, **cached(model, other))

    def unrelated():
        with attnviz.record(model):
            model(ids[:, :4])
            model(ids[:, :3], **cached(model, other))

    with pytest.raises(RecordingError, match="a recording must see every step of a generation"):
        unrelated()


@torch.no_grad()
def test_tokens_taken_back_are_replaced():
    """Assisted decoding: a step with three candidates, two of which are dropped again."""
    from transformers import DynamicCache

    model = generating("llama")
    ids = inputs("llama")["input_ids"]
    wrong = (ids + 7) % 90
    cache = DynamicCache(config=model.config)
    with attnviz.record(model) as trace:
        model(ids[:, :6], **cached(model, cache))
        model(torch.cat([ids[:, 6:7], wrong[:, 7:9]], 1), **cached(model, cache))
        cache.crop(-2)
        model(ids[:, 7:], **cached(model, cache))
    own = eager_pass(model, input_ids=ids, use_cache=False)
    assert_same(trace, own["self"], rows=12)
    assert [token.id for token in trace.tokens] == ids[0].tolist()


@torch.no_grad()
def test_a_real_model_s_generation_is_one_eager_pass(smollm2):
    model, tokenizer = smollm2
    given = tokenizer("The bank of the river was", return_tensors="pt")
    with attnviz.record(model, tokenizer=tokenizer) as trace:
        sequence = model.generate(**given, max_new_tokens=12, min_new_tokens=12, do_sample=False)
    own = eager_pass(model, input_ids=sequence[:, :-1], use_cache=False)
    assert_same(trace, own["self"], rows=sequence.shape[1] - 1)
    assert trace.text == tokenizer.decode(sequence[0, :-1])
    assert [str(token) for token in trace.tokens][:6] == ["The", "bank", "of", "the", "river", "was"]


@pytest.mark.parametrize("keep", ["qkv", "weights", "statistics"])
@torch.no_grad()
def test_what_is_kept_of_a_generation(keep):
    model = generating("mistral_window4")
    prompt = inputs("llama")["input_ids"][:, :6]
    traces = []
    for chosen in ("qk", keep):
        with attnviz.record(model, keep=chosen) as trace:
            model.generate(prompt, max_new_tokens=5, min_new_tokens=5, do_sample=False)
        traces.append(trace)
    plain, other = traces
    for one, two in zip(plain.every_head(), other.every_head(), strict=True):
        assert (one.entropy - two.entropy).abs().max() < 1e-5
        assert torch.equal(one.statistics.largest_key, two.statistics.largest_key)
        assert torch.equal(one.visible, two.visible)
        if keep != "statistics":
            assert (one.weights() - two.weights()).abs().max() < 1e-6
    if keep == "qkv":
        assert other.record(0).value.shape[2] == 10


@torch.no_grad()
def test_a_generation_spilled_to_files(tmp_path, monkeypatch):
    monkeypatch.setattr("attnviz.recording.store.SMALLEST_FILE", 1)
    model = generating("llama")
    prompt = inputs("llama")["input_ids"][:, :6]
    with attnviz.record(model, spill=tmp_path) as trace:
        sequence = model.generate(prompt, max_new_tokens=5, min_new_tokens=5, do_sample=False)
    assert_same(trace, eager_pass(model, input_ids=sequence, use_cache=False)["self"], rows=10)


@torch.no_grad()
def test_prefill_in_chunks():
    model = generating("llama")
    prompt = inputs("llama")["input_ids"]
    with attnviz.record(model) as trace:
        sequence = model.generate(prompt, max_new_tokens=4, min_new_tokens=4, prefill_chunk_size=5, do_sample=False)
    assert_same(trace, eager_pass(model, input_ids=sequence, use_cache=False)["self"], rows=15)
    assert trace.every_head()[0].steps == (0,) * 5 + (1,) * 5 + (2,) * 2 + (3, 4, 5)
