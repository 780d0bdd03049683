import pytest

from attnviz.dashboard import choices
from attnviz.dashboard.choices import locate, offered
from attnviz.dashboard.settings import Settings
from attnviz.errors import ModelError


@pytest.fixture(autouse=True)
def _listed_anew():
    choices._listed.cache_clear()


@pytest.fixture
def root(tmp_path):
    """A model root with a model, a trace, something else, and links that lead out of it."""
    outside = tmp_path / "outside"
    (outside / "secret").mkdir(parents=True)
    (outside / "secret" / "config.json").write_text("{}")
    inside = tmp_path / "root"
    (inside / "team" / "bert").mkdir(parents=True)
    (inside / "team" / "bert" / "config.json").write_text("{}")
    (inside / "run.attn").write_bytes(b"")
    (inside / "notes.txt").write_text("no model")
    (inside / "way-out").symlink_to(outside / "secret")
    return inside.resolve()


def test_models_and_traces_below_the_root_are_offered_and_nothing_else(root):
    assert offered(Settings(root)) == ["minilm", "smollm2", "run.attn", "team/bert"]


def test_given_traces_come_first_and_are_told_apart(root, tmp_path):
    one, two, other = (tmp_path / name for name in ("a/run.attn", "b/run.attn", "c.attn"))
    settings = Settings(root, traces=(one, two, other))
    assert offered(settings)[:4] == [one.as_posix(), two.as_posix(), "c.attn", "minilm"]
    assert locate("c.attn", settings) == other
    assert locate(two.as_posix(), settings) == two
    assert locate("run.attn", settings) == root / "run.attn"


def test_a_listing_is_not_made_for_every_page(root, monkeypatch):
    monkeypatch.setattr(choices, "monotonic", lambda: now)
    now = 100.0
    assert "run.attn" in offered(Settings(root))
    (root / "run.attn").rename(root / "other.attn")
    assert "run.attn" in offered(Settings(root))
    now = 111.0
    assert "other.attn" in offered(Settings(root))


def test_names_are_found(root):
    assert locate("minilm", Settings()) == "minilm"
    assert locate("team/bert", Settings(root)) == root / "team/bert"


@pytest.mark.parametrize("name", ["../outside/secret", "way-out", "/etc", "notes.txt", "org/model", "", "."])
def test_no_other_path_is_opened(root, name):
    with pytest.raises(ModelError, match="is not offered here: choose"):
        locate(name, Settings(root))


def test_the_nearest_name_is_proposed():
    with pytest.raises(ModelError, match=r"^minlm is not offered here: choose minilm"):
        locate("minlm", Settings())


def test_hub_models_only_when_allowed_and_never_a_path(root, monkeypatch):
    monkeypatch.chdir(root)
    allowed = Settings(root, allow_hub=True)
    assert locate("org/model", allowed) == "org/model"
    for name in ("way-out", "../outside", "/etc", "~/x", "a/b/c"):
        with pytest.raises(ModelError):
            locate(name, allowed)
