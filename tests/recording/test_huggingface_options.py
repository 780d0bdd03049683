"""What a recording keeps, and what it refuses to keep."""

import pytest
import torch
from recording.oracle import build, inputs, whole

import attnviz
from attnviz.errors import BudgetError, RecordingError, UsageError


@torch.no_grad()
def recorded(name="llama", **options):
    model = build(name)
    with attnviz.record(model, **options) as trace:
        model(**inputs(name))
    return trace


@pytest.fixture(scope="module")
def plain():
    return recorded()


def test_layers_restrict_what_is_kept(plain):
    trace = recorded(layers=[1, 3])
    assert trace.layers == (1, 3)
    assert torch.equal(whole(trace, 3), whole(plain, 3))


def test_layers_of_modules_that_take_turns():
    trace = recorded("albert", layers=[1, 3])
    assert trace.layers == (1, 3)
    assert torch.equal(whole(trace, 3), whole(recorded("albert"), 3))


@pytest.mark.parametrize("name", ["llama", "gpt_oss", "bloom", "t5"])
def test_heads_keep_their_own_numbers(name):
    part, every = recorded(name, heads=[3, 1]), recorded(name)
    if name == "t5":
        part, every = part.encoder, every.encoder
    assert [head.head for head in part.every_head()][:2] == [1, 3]
    for layer in part.layers:
        for head in (1, 3):
            assert torch.equal(part[layer, head].weights(), every[layer, head].weights())
            assert torch.equal(part[layer, head].entropy, every[layer, head].entropy)
    with pytest.raises(UsageError, match="head 0 was not kept: layer 1 of this trace has the heads 1, 3"):
        part[1, 0]


def test_heads_of_a_differential_model():
    part, every = recorded("diffllama", heads=[1]), recorded("diffllama")
    assert torch.equal(part[2, 1].weights(), every[2, 1].weights())


def test_statistics_alone(plain):
    trace = recorded(keep="statistics")
    table, whole_table = trace.heads(), plain.heads()
    assert (table - whole_table[table.columns]).abs().max().max() < 1e-6
    assert set(whole_table.columns) - set(table.columns) == {"next", "special", "punctuation", "sink"}
    with pytest.raises(UsageError, match='this trace keeps statistics only: record with keep="qk" to look at weights'):
        trace[0, 0].weights()


def test_weights_kept_whole(plain):
    trace = recorded(keep="weights")
    for layer in trace.layers:
        assert (whole(trace, layer) - whole(plain, layer)).abs().max() < 1e-6


def test_values_kept_too():
    trace = recorded(keep="qkv")
    record = trace.record(2)
    assert record.value.shape == (1, 2, 12, 8)
    assert recorded().record(2).value is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_storage_in_half_precision(plain, dtype):
    trace = recorded(dtype=dtype)
    view = trace.record(0).view.view
    assert view.query.dtype == view.key.dtype == dtype
    assert (whole(trace, 0) - whole(plain, 0)).abs().max() < 0.02
    assert (whole(trace, 0).sum(-1) - 1).abs().max() < 1e-5


def test_spilled_to_files(plain, tmp_path, monkeypatch):
    monkeypatch.setattr("attnviz.recording.store.SMALLEST_FILE", 1)
    trace = recorded(spill=tmp_path / "deep" / "folder", budget=20_000)
    assert len(list((tmp_path / "deep" / "folder").iterdir())) >= 8
    for layer in trace.layers:
        assert torch.equal(whole(trace, layer), whole(plain, layer))


def test_the_budget_stops_before_memory_runs_out():
    with pytest.raises(BudgetError) as caught:
        recorded(budget=10_000)
    assert str(caught.value) == (
        "layer 2 (layers.2.self_attn) would take the recording to 11.1 KiB, the budget is 9.8 KiB: pass a larger"
        ' budget=, fewer layers= or heads=, dtype=torch.float16, keep="statistics" or spill=folder'
    )


def test_the_budget_stops_whole_maps_before_they_are_made():
    with pytest.raises(BudgetError, match=r"the whole maps of BloomModel would take the recording to 9\.0 KiB"):
        recorded("bloom", budget=5_000)


def test_of_several_passes_the_last_is_kept_within_the_budget():
    model, ids = build("llama"), inputs("llama")["input_ids"]
    with torch.no_grad(), attnviz.record(model, budget=30_000) as trace:
        for shift in range(5):
            model(ids + shift)
    assert [token.id for token in trace.tokens] == (ids[0] + 4).tolist()
    assert trace.notes == ["4 earlier forward passes inside the block gave way to the last one"]


BAD = {
    "keep must be one of qk, qkv, statistics, weights, got 'all'": {"keep": "all"},
    "layer 9 does not attend: the layers of LlamaModel that do are 0, 1, 2, 3": {"layers": [1, 9]},
    "layers must name at least one layer, got none": {"layers": []},
    "heads must name at least one head, counting from zero, got []": {"heads": []},
    "heads must name at least one head, counting from zero, got [-1]": {"heads": [-1]},
    "head 4 does not exist: layer 0 has 4 heads (0 to 3)": {"heads": [4]},
    "budget must be a positive number of bytes, got 0": {"budget": 0},
    "dtype must be a floating point type, got torch.int8": {"dtype": torch.int8},
}


@pytest.mark.parametrize("message", BAD)
def test_bad_arguments(message):
    with pytest.raises(UsageError) as caught:
        recorded(**BAD[message])
    assert str(caught.value) == message


def test_a_model_that_did_not_run():
    model = build("llama")
    with pytest.raises(RecordingError, match="nothing was recorded: LlamaModel did not run"), attnviz.record(model):
        pass


def test_coverage_names_every_layer():
    table = recorded("qwen3_next").coverage()
    assert table["kind"].tolist() == ["self", "linear", "linear", "linear"]
    assert table["module"].tolist() == ["layers.3.self_attn", *(f"layers.{n}.linear_attn" for n in range(3))]
    assert table["layer"].tolist() == [3, 0, 1, 2]
    assert table["recorded by"].tolist() == ["interface", "", "", ""]
    assert recorded("bloom").coverage()["recorded by"].tolist() == ["output_attentions"] * 4


def test_layers_without_weights_are_named_and_shared_blocks_numbered_by_their_place():
    from transformers import GraniteMoeHybridConfig, GraniteMoeHybridModel, Zamba2Config, Zamba2Model

    sizes = {"vocab_size": 99, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 4, "mamba_d_state": 8, "mamba_expand": 2}
    kinds = ["mamba", "attention"] * 2
    granite = GraniteMoeHybridConfig(
        **sizes, layer_types=kinds, mamba_n_heads=8, mamba_d_head=8, num_local_experts=2, shared_intermediate_size=32
    )
    zamba = Zamba2Config(
        **sizes, layers_block_type=["linear_attention", "hybrid"] * 2, hybrid_layer_ids=[1, 3], n_mamba_heads=8,
        mamba_headdim=8, attention_head_dim=16, attention_hidden_size=64, num_query_groups=4, kv_channels=8,
    )  # fmt: skip
    for model, linear in ((GraniteMoeHybridModel(granite), {0, 2}), (Zamba2Model(zamba), {0, 1, 2, 3})):
        with torch.no_grad(), attnviz.record(model.eval()) as trace:
            model(torch.arange(5, 13)[None], use_cache=False)
        assert trace.layers == (1, 3)
        assert {record.layer for record in trace.records if record.kind == "linear"} == linear


def test_images_have_a_grid_of_patches():
    trace = recorded("vit")
    assert trace.grid == (4, 4)
    assert [str(token) for token in trace.tokens][:6] == ["[CLS]", "0,0", "0,1", "0,2", "0,3", "1,0"]
    assert recorded("siglip_vision_model").grid == (4, 4)
    assert len(recorded("siglip_vision_model").tokens) == 16


def test_three_kinds_of_an_encoder_decoder():
    trace = recorded("bart")
    assert trace.kinds == ("encoder", "decoder", "cross")
    assert trace.cross[1, 2].shape == (7, 12)
    assert [token.id for token in trace.cross[1, 2].cols] == inputs("bart")["input_ids"][0].tolist()
    with pytest.raises(UsageError, match=r"choose one of trace\.encoder, trace\.decoder, trace\.cross"):
        trace[0, 0]


def test_labels_for_both_sides():
    trace = recorded("bart", tokens={"encoder": list("abcdefghijkl"), "decoder": list("ABCDEFG")})
    head = trace.cross[0, 0]
    assert "".join(map(str, head.rows)) + "".join(map(str, head.cols)) == "ABCDEFGabcdefghijkl"


def test_a_differential_layer_has_branches_and_their_difference():
    trace = recorded("diffllama")
    assert trace.branches(0) == ("first", "second", "difference")
    module = build("diffllama").layers[0].self_attn
    with torch.no_grad():
        grown, shrunk = (module.lambda_q1 @ module.lambda_k1).exp(), (module.lambda_q2 @ module.lambda_k2).exp()
    factor = float(grown - shrunk) + module.lambda_init
    first, second = (trace[0, 1, branch].weights() for branch in ("first", "second"))
    assert torch.allclose(trace[0, 1].weights(), first - factor * second, atol=1e-6)


@torch.no_grad()
def test_a_model_and_the_stack_inside_it_count_one_pass():
    from recording.test_huggingface_generation import generating

    model = generating("llama")
    with attnviz.record(model) as trace:
        model.generate(inputs("llama")["input_ids"][:, :6], max_new_tokens=2, use_cache=False, do_sample=False)
    assert trace.notes == ["1 earlier forward pass inside the block gave way to the last one"]
