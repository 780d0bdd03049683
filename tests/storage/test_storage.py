import json
import os
import random
import struct
from dataclasses import fields, replace

import pytest
import torch
from traces import make_trace, trace_of

import attnviz
from attnviz.composed import Difference, Stacked
from attnviz.errors import AttnvizError, TraceFileError, UsageError
from attnviz.head import Record
from attnviz.storage import load, save
from attnviz.trace import Trace
from attnviz.views import QueryKey
from attnviz_kernels import Emit, Mask, attend, check, view_of


def view_with(mask, **options):
    query, key, value = (torch.randn(2, 4, 6, 8, generator=torch.Generator().manual_seed(k)) for k in range(3))
    call = check(
        query,
        key[:, :2],
        value[:, :2],
        None,
        mask,
        options.get("softcap"),
        options.get("bias"),
        options.get("sinks"),
        Emit(),
    )
    attended = attend(query, call.key, call.value, mask=mask, **options)
    return QueryKey(view_of(call, attended))


def record_of(view):
    return Trace("m", [Record("layers.0", 0, "self", "interface", "blockwise", view)], {})


PADDING = torch.tensor([[True] * 6, [False] * 2 + [True] * 4])
VIEWS = {
    "plain": lambda: view_with(Mask()),
    "structure": lambda: view_with(Mask(causal=True, window=(3, None), chunk=4, key_padding=PADDING)),
    "segments": lambda: view_with(Mask(segments=(torch.tensor([[0, 0, 1, 1, 1, 2]] * 2),) * 2)),
    "dense": lambda: view_with(Mask(dense=torch.rand(1, 1, 6, 6).expand(2, 4, 6, 6) > 0.3)),
    "options": lambda: view_with(Mask(causal=True), softcap=5.0, bias=torch.randn(1, 4, 6, 6), sinks=torch.randn(4)),
    "stacked": lambda: Stacked((view_with(Mask(causal=True)), view_with(Mask(causal=True))), (0, 6), 12),
    "difference": lambda: Difference(view_with(Mask()), view_with(Mask(causal=True)), 0.5),
    "given": lambda: trace_of([[[[1.0, 0], [0.5, 0.5]]]]).records[0].view,
}


@pytest.mark.parametrize("name", VIEWS)
def test_every_view_comes_back_exactly(name, tmp_path):
    trace = record_of(VIEWS[name]())
    trace.save(tmp_path / "run.attn")
    found = attnviz.load(tmp_path / "run.attn")
    for batch in range(trace.batch_size):
        for head in range(trace.head_count(0)):
            one, other = trace.sequence(batch)[0, head], found.sequence(batch)[0, head]
            assert torch.equal(one.weights(), other.weights())
            assert torch.equal(one.visible, other.visible)


def test_labels_notes_and_statistics_come_back(tmp_path):
    trace = make_trace(["a", "</script>", "ü你"], causal=True)
    trace.notes.append("dropout was on")
    save(trace, tmp_path / "run.attn")
    found = load(tmp_path / "run.attn")
    assert found.axes == trace.axes
    assert (found.model, found.notes, found.layers) == (trace.model, trace.notes, trace.layers)
    for field in fields(trace[1, 2].statistics):
        assert torch.equal(getattr(found[1, 2].statistics, field.name), getattr(trace[1, 2].statistics, field.name))


def test_a_mask_shared_by_layers_is_stored_once(tmp_path):
    dense = torch.rand(1, 1, 64, 64) > 0.5
    base = make_trace([str(i) for i in range(64)], layers=1)
    view = base.records[0].view.view
    shared = [replace(base.records[0], layer=k, view=QueryKey(replace(view, mask=Mask(dense=dense)))) for k in range(8)]
    save(Trace("m", shared, {}), tmp_path / "run.attn")
    save(Trace("m", shared[:1], {}), tmp_path / "one.attn")
    # eight masks would be 28 kB more; what is left are the headers of eight records
    assert (tmp_path / "run.attn").stat().st_size - (tmp_path / "one.attn").stat().st_size < 7 * 64 * 64 / 2


def test_half_precision_halves_the_vectors_and_keeps_three_digits(tmp_path):
    trace = make_trace([str(i) for i in range(200)])
    save(trace, tmp_path / "whole.attn", layers=[1])
    save(trace, tmp_path / "half.attn", layers=[1], dtype=torch.float16)
    found = load(tmp_path / "half.attn")
    assert found.layers == (1,)
    assert found.records[0].view.view.query.dtype == torch.float16
    view = trace[1, 0].view.view
    scores = view.scale * view.query[0, 0].abs() @ view.key[0, 0].abs().T
    # q and k are each off by at most 2^-11 of themselves, a weight by at most its score's error
    assert (found[1, 0].weights() - trace[1, 0].weights()).abs().max() < scores.max() * 2**-10
    sizes = [(tmp_path / f"{name}.attn").stat().st_size for name in ("whole", "half")]
    assert sizes[0] - sizes[1] == pytest.approx(2 * 2 * 3 * 200 * 8, abs=64)  # headers differ by a few bytes


def test_statistics_only(tmp_path):
    trace = make_trace()
    save(trace, tmp_path / "run.attn", statistics_only=True)
    found = load(tmp_path / "run.attn")
    assert torch.equal(found[0, 1].entropy, trace[0, 1].entropy)
    with pytest.raises(UsageError, match="this trace keeps statistics only"):
        found[0, 1].weights()


def test_tensors_are_mapped_not_read(tmp_path):
    """Loading must not read a large file: the process maps it, and a change of the file shows in the tensor."""
    save(make_trace([str(i) for i in range(500)], layers=1), tmp_path / "run.attn")
    view = load(tmp_path / "run.attn").records[0].view.view
    with (tmp_path / "maps").open("w") as copy, open("/proc/self/maps") as maps:  # noqa: PTH123
        copy.write(maps.read())
    assert "run.attn" in (tmp_path / "maps").read_text()
    assert view.query.shape == (1, 3, 500, 8)


def test_the_old_file_stays_when_saving_fails(tmp_path, monkeypatch):
    path = tmp_path / "run.attn"
    save(make_trace(), path)
    before = path.read_bytes()

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(AttnvizError, match="could not be written: No space left on device"):
        save(make_trace(seed=1), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["run.attn"]  # noqa: PTH208


def edited(path, change):
    """The file with its header changed by `change(dict)`."""
    content = path.read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + size])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + size :])


def test_refusals_are_one_clear_line(tmp_path):
    path = tmp_path / "run.attn"

    def refused(message, change=None, content=None):
        save(make_trace(), path)
        if change is not None:
            edited(path, change)
        if content is not None:
            path.write_bytes(content(path.read_bytes()))
        with pytest.raises(TraceFileError, match=message) as caught:
            load(path)
        assert "\n" not in str(caught.value)

    refused("is damaged or no trace file", content=lambda data: data[:-10])
    refused("is damaged or no trace file", content=lambda data: data + b"more")
    refused("is damaged or no trace file", content=lambda data: b"")
    refused("is damaged or no trace file", content=lambda data: b"hello" * 100)
    refused("has trace format 9, this attnviz", lambda header: header["__metadata__"].update(format="9"))
    refused("is a safetensors file but no trace", lambda header: header.pop("__metadata__"))
    refused(
        "was edited or is damaged",
        lambda header: header["__metadata__"].update(trace=header["__metadata__"]["trace"].replace("tiny", "huge")),
    )
    with pytest.raises(TraceFileError, match="does not exist"):
        load(tmp_path / "none.attn")
    with pytest.raises(UsageError, match=r"no recorded layer is among \[9\]"):
        save(make_trace(), path, layers=[9])
    with pytest.raises(UsageError, match="dtype must be"):
        save(make_trace(), path, dtype=torch.int8)


def test_only_named_classes_are_built(tmp_path):
    from attnviz.storage import _checksum

    path = tmp_path / "run.attn"
    save(make_trace(), path)
    from safetensors.torch import load_file

    tensors = load_file(path)

    def forge(header):
        text = header["__metadata__"]["trace"].replace('"class":"QueryKey"', '"class":"Path"')
        header["__metadata__"].update(trace=text, checksum=_checksum(text, tensors))

    edited(path, forge)
    with pytest.raises(TraceFileError, match="does not hold together"):
        load(path)


def test_two_thousand_mutations_end_in_an_error_or_a_trace(tmp_path):
    path = tmp_path / "run.attn"
    save(make_trace(["a", "b", "c"], layers=1, heads=1), path)
    whole = path.read_bytes()
    generator = random.Random(0)
    refused = 0
    for _ in range(2000):
        content = bytearray(whole)
        kind = generator.randrange(4)
        if kind == 0:
            for _ in range(generator.randrange(1, 8)):
                content[generator.randrange(len(content))] = generator.randrange(256)
        elif kind == 1:
            del content[generator.randrange(len(content)) :]
        elif kind == 2:
            place = generator.randrange(len(content))
            content[place:place] = bytes(generator.randrange(256) for _ in range(generator.randrange(1, 20)))
        else:
            content[:8] = struct.pack("<Q", generator.choice([0, 1, 1 << 20, 1 << 40, (1 << 64) - 1]))
        path.write_bytes(content)
        try:
            found = load(path)
            found[0, 0].weights()
        except AttnvizError:
            refused += 1
    assert refused > 1000


PIECES = [
    *(None, -1, 0, 1, 7, 10**12, 1.5, float("nan"), "", "x", True, [], [1, 2], {}, [[]]),
    *({"tensor": "t0"}, {"tensor": "t1"}, {"tensor": "t9"}, {"slice": [0, 10**9]}, {"slice": [0, 0.5]}),
]


def places(value, here=()):
    """Every place in a tree of JSON."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in items:
        yield (*here, name)
        yield from places(inner, (*here, name))


def test_forged_headers_end_in_an_error_or_a_trace_that_works(tmp_path):
    """The header rewritten so that its checksum fits: what is no trace is refused when loaded, not somewhere later."""
    from safetensors.torch import load_file

    from attnviz.storage import _checksum

    path, generator, refused = tmp_path / "run.attn", random.Random(0), 0
    for name in (*VIEWS, "axes", "statistics"):
        make = VIEWS.get(name)
        trace = make_trace(batch=2) if make is None else record_of(make())
        save(trace, path, statistics_only=name == "statistics")
        whole, tensors = path.read_bytes(), load_file(path)
        for _ in range(40):
            path.write_bytes(whole)

            def forge(header, tensors=tensors):
                tree = json.loads(header["__metadata__"]["trace"])
                *way, last = generator.choice(list(places(tree)))
                part = tree
                for step in way:
                    part = part[step]
                part[last] = generator.choice(PIECES)
                text = json.dumps(tree)
                header["__metadata__"].update(trace=text, checksum=_checksum(text, tensors))

            edited(path, forge)
            try:
                found = load(path)
                repr(found), found.heads()
                for head in found.every_head()[:1]:
                    head.weights(), head.links(2)
            except AttnvizError:
                refused += 1
    assert refused > 250


def test_types_are_told_apart():
    from attnviz.typed import fits

    right = [(1, int), (1.5, float), (1, float), (None, int | None), ((), tuple[int, ...]), ((1, "a"), tuple[int, str])]
    wrong = [(True, int), ("1", float), (None, int), ((1.5,), tuple[int, ...]), ((1,), tuple[int, str]), ([1], tuple)]
    assert all(fits(*case) for case in right)
    assert not any(fits(*case) for case in wrong)


def test_a_trace_says_which_weights_it_is_from(tmp_path):
    torch.manual_seed(0)
    model = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(1, 3, 8)

    def recorded():
        with attnviz.record(model) as trace:
            model(x, x, x)
        return trace

    before, again = recorded(), recorded()
    with torch.no_grad():
        model.out_proj.weight += 0.5
    after = recorded()
    assert before.revision.startswith("sha256:")
    assert before.revision == again.revision != after.revision
    before.save(tmp_path / "run.attn")
    assert load(tmp_path / "run.attn").revision == before.revision


def test_files_without_it_are_read(tmp_path):
    from safetensors.torch import load_file

    from attnviz.storage import _checksum

    path = tmp_path / "run.attn"
    save(make_trace(), path)
    tensors = load_file(path)

    def older(header):
        tree = json.loads(header["__metadata__"]["trace"])
        del tree["revision"]
        text = json.dumps(tree)
        header["__metadata__"].update(trace=text, checksum=_checksum(text, tensors))

    edited(path, older)
    assert load(path).revision == ""


def test_the_hub_says_its_commit():
    from types import SimpleNamespace

    from attnviz.recording.revision import revision

    model = torch.nn.Linear(2, 2)
    model.config = SimpleNamespace(_commit_hash="9f1c")
    assert revision(model) == "9f1c"
    assert revision(torch.nn.Identity()) == ""
