"""`load_model`: what it chooses, what it refuses, and each refusal in one line."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import llama, save_bert

from attnviz.errors import BudgetError, ModelError
from attnviz.models import load_config, load_model, load_reader


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A folder of its own, to be damaged."""
    return Path(shutil.copytree(saved, tmp_path / "bert"))


def test_loaded_model_computes_what_the_saved_one_computes(saved: Path) -> None:
    from transformers import BertModel

    model, tokenizer = load_model(saved)
    inputs = tokenizer("the cats sat.", return_tensors="pt")
    assert tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])[1:-1] == ["the", "cat", "##s", "sat", "."]
    eager = BertModel.from_pretrained(saved, attn_implementation="eager").eval()
    torch.testing.assert_close(model(**inputs)[0], eager(**inputs)[0], rtol=0, atol=1e-6)
    assert not model.training


@pytest.mark.parametrize(
    "kind", ["BertModel", "BertForMaskedLM", "BertForSequenceClassification", "BertForTokenClassification"]
)
def test_head_that_was_saved_is_loaded(tmp_path: Path, kind: str) -> None:
    model, _ = load_model(save_bert(tmp_path / "model", kind))
    assert type(model).__name__ == kind


def test_head_that_the_weights_lack_is_left_out(folder: Path) -> None:
    change_config(folder, architectures=["BertForMaskedLM"])
    model, _ = load_model(folder)
    assert type(model).__name__ == "BertModel"


def test_fused_attention_where_the_class_has_it_else_eager(saved: Path, tmp_path: Path) -> None:
    from transformers import BigBirdConfig, BigBirdModel

    assert load_model(saved)[0].config._attn_implementation == "sdpa"
    config = BigBirdConfig(
        vocab_size=10, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    BigBirdModel(config).save_pretrained(tmp_path / "bird")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(saved / name, tmp_path / "bird")
    assert load_model(tmp_path / "bird")[0].config._attn_implementation == "eager"


def test_attention_named_by_a_model_is_not_obeyed(folder: Path) -> None:
    change_config(folder, attn_implementation="someone/kernel", _attn_implementation="someone/kernel")
    assert load_model(folder)[0].config._attn_implementation == "sdpa"


def test_dtype(saved: Path) -> None:
    assert load_model(saved)[0].dtype == torch.float32
    assert load_model(saved, dtype=torch.bfloat16)[0].dtype == torch.bfloat16


def test_vision_model_has_no_tokenizer(tmp_path: Path) -> None:
    from transformers import ViTConfig, ViTModel

    numbers = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    ViTModel(ViTConfig(image_size=8, patch_size=4, **numbers)).save_pretrained(tmp_path)
    model, tokenizer = load_model(tmp_path)
    assert (type(model).__name__, tokenizer) == ("ViTModel", None)
    with pytest.raises(ModelError, match=r" reads no text, it has no tokenizer: record it on inputs of your own"):
        load_reader(str(tmp_path))


def test_config_that_names_no_class_and_one_with_a_wrong_number(folder: Path) -> None:
    change_config(folder, architectures=None)
    assert type(load_model(folder)[0]).__name__ == "BertModel"
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"bert has no weights"):
        load_model(folder)
    change_config(folder, hidden_size="many")
    with pytest.raises(ModelError, match=r"cannot be loaded: Validation error for field 'hidden_size': .+"):
        load_model(folder)


def test_every_model_of_text_needs_its_tokenizer(tmp_path: Path) -> None:
    llama().save_pretrained(tmp_path / "llama")
    with pytest.raises(ModelError, match=r"llama has no tokenizer files, such as tokenizer\.json; write them there"):
        load_model(tmp_path / "llama")


def test_config_alone(saved: Path) -> None:
    assert load_config(saved).num_attention_heads == 4


def test_size_is_checked_before_loading(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(BudgetError, match=r"bert takes .* KiB in float32, 1.0 KiB may be used; load it in a smaller"):
        load_model(folder, max_bytes=1024)


def test_size_counts_the_dtype(saved: Path) -> None:
    total = sum(parameter.numel() for parameter in load_model(saved)[0].parameters())
    load_model(saved, max_bytes=4 * total)
    load_model(saved, max_bytes=2 * total, dtype=torch.float16)
    with pytest.raises(BudgetError):
        load_model(saved, max_bytes=4 * total - 1)


def test_more_than_the_memory_there_is(folder: Path) -> None:
    change_config(folder, vocab_size=10**12)
    with pytest.raises(BudgetError, match=r"takes 58\.2 TiB in float32"):
        load_model(folder)


def test_pickle_only_when_trusted(folder: Path) -> None:
    from safetensors.torch import load_file

    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"only as pickle, which can run code when read; .* trust_pickle=True"):
        load_model(folder)
    assert type(load_model(folder, trust_pickle=True)[0]).__name__ == "BertModel"


def test_code_of_a_model_is_never_run(folder: Path) -> None:
    (folder / "code.py").write_text(f"open({str(folder / 'ran')!r}, 'w')")
    change_config(folder, model_type="theirs", auto_map={"AutoConfig": "code.Config", "AutoModel": "code.Model"})
    with pytest.raises(ModelError, match="needs code of its own, which is never run; load it yourself and pass"):
        load_model(folder)
    assert not (folder / "ran").exists()


def test_nothing_but_the_result(saved: Path, capfd: pytest.CaptureFixture[str]) -> None:
    load_model(saved)
    assert capfd.readouterr() == ("", "")


Damage = Callable[[Path], Any]


def change_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def cut(name: str, size: int) -> Damage:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:size])


def without(*names: str) -> Damage:
    return lambda folder: [(folder / name).unlink() for name in names]


def shard_missing(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (without("config.json"), r"bert has no config.json; name a folder written by model.save_pretrained"),
        (cut("config.json", 40), r"config.json is not valid JSON \(.*\); save or download it again"),
        (without("model.safetensors"), r"bert has no weights \(model.safetensors\); copy or download them there"),
        (cut("model.safetensors", 0), r"model.safetensors is damaged \(.*\); copy or download it again"),
        (cut("model.safetensors", 100), r"model.safetensors is damaged \(.*\); copy or download it again"),
        (cut("model.safetensors", 9000), r"model.safetensors is damaged \(.*\); copy or download it again"),
        (shard_missing, r"bert lacks 1 of 2 weight files, such as model-00002-of-00002.safetensors; download them"),
        (without("vocab.txt", "tokenizer.json"), r"bert has no tokenizer files, such as tokenizer.json; write them"),
        (cut("tokenizer.json", 60), r"bert cannot be loaded: "),
        (
            lambda folder: change_config(folder, num_hidden_layers=3),
            r"lacks 16 of the parameters that config.json asks for, such as encoder.layer.2.attention.* download",
        ),
        (
            lambda folder: change_config(folder, hidden_size=32),
            r"bert has weights of other shapes than config",
        ),
        (lambda folder: change_config(folder, model_type="nonsense"), r"bert cannot be loaded: .*`nonsense`"),
        (lambda folder: (folder / "config.json").write_text("{}"), r"bert cannot be loaded: .*model_type"),
    ],
)
def test_incomplete_folder(folder: Path, damage: Damage, message: str) -> None:
    damage(folder)
    with pytest.raises(ModelError, match=message) as caught:
        load_model(folder)
    assert "\n" not in str(caught.value)


def test_wrong_name_gives_the_nearest() -> None:
    expected = (
        'no model "minlm": not on this machine, and HF_HUB_OFFLINE is set keeps from asking the hub; '
        "did you mean minilm? Bundled are minilm, smollm2; a folder, a .gguf file or a hub id will do as well"
    )
    with pytest.raises(ModelError) as caught:
        load_model("minlm")
    assert str(caught.value) == expected


def test_names_in_the_hub_cache_are_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    (tmp_path / "models--org--little-bert").mkdir()
    with pytest.raises(ModelError, match="did you mean org/little-bert"):
        load_model("org/litle-bert")


@pytest.mark.parametrize("name", ["./absent", "/no/such/model", "a/b/c", "absent.gguf/", "~/absent", ""])
def test_path_that_does_not_exist(name: str) -> None:
    with pytest.raises(ModelError, match=f'no model "{name}": there is no such file or folder'):
        load_model(name)


def test_file_that_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").touch()
    with pytest.raises(ModelError, match=r"weights.bin is neither a folder nor a .gguf file; name the folder"):
        load_model(tmp_path / "weights.bin")


def test_a_trace_is_no_model() -> None:
    with pytest.raises(ModelError, match=r"^run.attn is a saved trace, and the model itself is needed here: name the"):
        load_model("run.attn")


def test_bundled_name_comes_first_and_a_path_is_still_a_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    folder.rename(folder.parent / "minilm")
    assert load_model("./minilm")[0].config.num_hidden_layers == 2
