"""Nested recorders, threads, exceptions, compiled and training models: right, and nothing left behind."""

import threading

import pytest
import torch
from recording.oracle import build, inputs, whole

import attnviz
from attnviz.errors import RecordingError


def map_of(model, **given):
    with torch.no_grad(), attnviz.record(model) as trace:
        model(**(given or inputs("llama")))
    return whole(trace, 2)


@pytest.fixture
def llama():
    return build("llama")


@torch.no_grad()
def test_nested_recorders_both_record(llama):
    ids = inputs("llama")["input_ids"]
    with attnviz.record(llama) as outer:
        with attnviz.record(llama, layers=[2], keep="weights") as inner:
            llama(ids)
        assert llama.config._attn_implementation == "attnviz"
        llama(ids + 1)
    assert llama.config._attn_implementation == "sdpa"
    assert (whole(inner, 2) - map_of(llama)).abs().max() < 1e-6
    assert torch.equal(whole(outer, 2), map_of(llama, input_ids=ids + 1))


@torch.no_grad()
def test_nested_recorders_both_know_what_generate_returned():
    from recording.test_huggingface_generation import generating

    model = generating("llama")
    prompt = inputs("llama")["input_ids"][:, :6]
    options = {"max_new_tokens": 4, "num_beams": 3, "do_sample": False}
    with attnviz.record(model) as outer:
        with attnviz.record(model):
            pass_one = model.generate(prompt, **options)
        pass_two = model.generate(prompt + 1, **options)
    assert "generate" not in vars(model)
    assert not torch.equal(pass_one, pass_two)
    assert outer.batch_size == 1
    assert [token.id for token in outer.tokens] == pass_two[0, : len(outer.tokens)].tolist()


def in_a_thread(work):
    """What a function gives, or raises, in a thread of its own."""
    found = []

    def run():
        try:
            found.append(work())
        except RecordingError as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


def test_a_model_is_recorded_in_one_thread_at_a_time(llama):
    other = build("llama", seed=1)
    other.config = llama.config
    want = map_of(llama)
    with torch.no_grad(), attnviz.record(llama) as trace:
        refused = [in_a_thread(lambda model=model: map_of(model)) for model in (llama, other, llama.layers[0])]
        llama(**inputs("llama"))
    for error in refused:
        assert "is being recorded in another thread, or shares modules or its configuration" in str(error)
    assert torch.equal(whole(trace, 2), want)
    assert llama.config._attn_implementation == "sdpa"
    assert torch.equal(in_a_thread(lambda: map_of(llama)), want)


@torch.no_grad()
def test_a_call_from_another_thread_amid_a_recorded_one_is_refused(llama):
    def intrude(*_):
        handle.remove()
        in_a_thread(lambda: llama(**inputs("llama")))

    handle = llama.layers[1].register_forward_pre_hook(intrude)
    with pytest.raises(RecordingError, match="LlamaAttention was called from two threads at once"):  # noqa: SIM117
        with attnviz.record(llama):
            llama(**inputs("llama"))
    assert llama.config._attn_implementation == "sdpa"


def test_two_threads_record_two_models():
    models = [build("llama", seed=seed) for seed in (0, 1)]
    alone = [map_of(model) for model in models]
    found, barrier = [None, None], threading.Barrier(2)

    def work(index):
        with torch.no_grad(), attnviz.record(models[index]) as trace:
            barrier.wait(timeout=20)
            for _ in range(5):
                models[index](**inputs("llama"))
            barrier.wait(timeout=20)
        found[index] = whole(trace, 2)

    threads = [threading.Thread(target=work, args=(index,)) for index in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert torch.equal(found[0], alone[0])
    assert torch.equal(found[1], alone[1])
    assert not torch.equal(found[0], found[1])


def test_generation_in_another_thread_is_recorded(llama):
    """The usual way of streaming: generate runs in a thread of its own."""
    with attnviz.record(llama) as trace:
        thread = threading.Thread(target=lambda: llama(**inputs("llama")))
        thread.start()
        thread.join(timeout=60)
    assert (whole(trace, 2) - map_of(llama)).abs().max() < 1e-6


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_exception_in_the_middle_of_a_forward_pass_leaves_no_trace(llama, error):
    def fail(*_):
        raise error

    handle = llama.layers[2].mlp.register_forward_pre_hook(fail)

    def run():
        with attnviz.record(llama):
            llama(**inputs("llama"))

    with pytest.raises(error):
        run()
    handle.remove()
    assert llama.config._attn_implementation == "sdpa"
    assert all(not part._forward_pre_hooks and not part._forward_hooks for part in llama.modules())
    assert map_of(llama).shape == (1, 4, 12, 12)


@torch.no_grad()
def test_a_model_whose_weights_are_brought_in_layer_by_layer(llama):
    from accelerate import cpu_offload

    want, expected = map_of(llama), llama(**inputs("llama"))[0]
    offloaded = cpu_offload(llama)
    assert {parameter.device.type for parameter in offloaded.parameters()} == {"meta"}
    with attnviz.record(offloaded) as trace:
        found = offloaded(**inputs("llama"))[0]
    assert (whole(trace, 2) - want).abs().max() < 1e-6
    assert (found - expected).abs().max() < 1e-5
    assert "attnviz" not in offloaded.config._attn_implementation


@torch.no_grad()
def test_a_compiled_model(llama):
    compiled = torch.compile(llama, backend="eager")
    compiled(**inputs("llama"))
    with attnviz.record(compiled) as trace:
        compiled(**inputs("llama"))
    assert torch.equal(whole(trace, 2), map_of(llama))


def test_inference_mode(llama):
    with torch.inference_mode(), attnviz.record(llama) as trace:
        llama(**inputs("llama"))
    assert torch.equal(whole(trace, 2), map_of(llama))


def test_autocast(llama):
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16), attnviz.record(llama) as trace:
        llama(**inputs("llama"))
    assert (whole(trace, 2) - map_of(llama)).abs().max() < 0.1
    assert (whole(trace, 2).sum(-1) - 1).abs().max() < 1e-5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_models(dtype):
    model = build("llama", dtype)
    eager = build("llama", dtype, "eager")
    with torch.no_grad():
        own = eager(**inputs("llama"), output_attentions=True).attentions[0]
    with torch.no_grad(), attnviz.record(model) as trace:
        model(**inputs("llama"))
    assert (whole(trace, 0) - own).abs().max() < 0.02


def test_gradients_go_through_a_recorded_model():
    toward = torch.randn(1, 12, 32, dtype=torch.float64)
    own = build("llama", torch.float64, "eager")
    (own(**inputs("llama"))[0] * toward).sum().backward()
    model = build("llama", torch.float64)
    with attnviz.record(model) as trace:
        (model(**inputs("llama"))[0] * toward).sum().backward()
    assert not trace.record(0).view.view.query.requires_grad
    for name, parameter in own.named_parameters():
        found = model.get_parameter(name).grad
        assert (found - parameter.grad).abs().max() < 1e-5 * (1 + parameter.grad.abs().max())


def test_gradient_checkpointing_is_recorded_once():
    model = build("llama").train()
    getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)()
    ids = inputs("llama")["input_ids"]
    with attnviz.record(model) as trace:
        embeds = model.embed_tokens(ids)
        model(inputs_embeds=embeds, use_cache=False)[0].sum().backward()
    assert len(trace.records) == 4
    assert (whole(trace, 2) - map_of(model.eval())).abs().max() < 1e-6


def test_dropout_of_weights_is_that_of_eager_attention():
    outputs = []
    for attention in ("eager", None):
        model = build("bert", attention=attention, attention_probs_dropout_prob=0.5).train()
        torch.manual_seed(0)
        if attention is None:
            with attnviz.record(model) as trace:
                outputs.append(model(**inputs("bert"))[0])
        else:
            outputs.append(model(**inputs("bert"))[0])
    assert (outputs[0] - outputs[1]).abs().max() < 1e-5
    assert (whole(trace, 1).sum(-1) - 1).abs().max() < 1e-5
    assert trace.record(1).notes == ("training mode: the weights are those before dropout",)


def test_dropout_of_models_that_compute_by_hand_is_refused():
    model = build("mpnet").train()
    with pytest.raises(RecordingError, match="returns weights after dropout in training mode"), attnviz.record(model):
        model(**inputs("mpnet"))


def test_an_attention_function_of_unknown_meaning_is_caught():
    """A module whose eager function does something that the recorder cannot know."""
    from transformers.models.llama import modeling_llama

    model = build("llama")
    own = modeling_llama.eager_attention_forward

    def sharpened(module, query, key, value, attention_mask, scaling, **rest):
        return own(module, query, key, value, attention_mask, scaling=2 * scaling, **rest)

    modeling_llama.eager_attention_forward = sharpened
    try:
        with pytest.raises(RecordingError, match="LlamaAttention computes attention in a way that is not known here"):
            map_of(model)
    finally:
        modeling_llama.eager_attention_forward = own


def test_a_tensor_of_unknown_meaning_is_refused(llama):
    with pytest.raises(RecordingError, match="LlamaAttention passes strange to its attention"):
        map_of(llama, **inputs("llama"), strange=torch.ones(2))


@torch.no_grad()
def test_a_model_inside_another_module():
    class Wrapper(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = build("llama")

        def forward(self, ids):
            return self.inner(ids)[0].mean(1)

    model = Wrapper()
    with attnviz.record(model) as trace:
        model(inputs("llama")["input_ids"])
    assert [record.name for record in trace.records] == [f"inner.layers.{n}.self_attn" for n in range(4)]
    assert [token.id for token in trace.tokens] == inputs("llama")["input_ids"][0].tolist()


@torch.no_grad()
def test_a_part_of_a_model():
    model = build("bart")
    with attnviz.record(model.encoder) as trace:
        model(**inputs("bart"))
    assert trace.layers == (0, 1, 2)


@torch.no_grad()
def test_no_mask_of_rows_and_columns_is_built_for_structure():
    """A sliding window and padding at a length where a whole mask would take gigabytes."""
    model = build("mistral_window4", num_hidden_layers=1, max_position_embeddings=1 << 16)
    length = 1 << 15
    ids = torch.randint(5, 90, (1, length))
    real = torch.ones_like(ids)
    real[:, :100] = 0
    with attnviz.record(model) as trace:
        model(ids, attention_mask=real)
    mask = trace.record(0).view.view.mask
    assert mask.dense is None
    assert mask.window == (3, None)
    assert trace[0, 0].weights(slice(500, 501), slice(490, 502)).count_nonzero() == 4
