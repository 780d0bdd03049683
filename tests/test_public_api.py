"""The public names: what `__all__` says is there, is documented, and is all there is."""

import importlib
import inspect

import pytest

import attnviz
import attnviz_kernels

PUBLIC = {
    "AttnvizError",
    "Head",
    "Token",
    "Trace",
    "analysis",
    "attention",
    "charts",
    "errors",
    "export",
    "inspect",
    "load",
    "load_model",
    "record",
    "tap",
}


def test_names_are_the_promised_ones() -> None:
    """Adding or removing a name is a decision, recorded in the changelog."""
    assert set(attnviz.__all__) == PUBLIC
    assert set(dir(attnviz)) == {*PUBLIC, "__version__"}


@pytest.mark.parametrize("module", [attnviz, attnviz_kernels])
def test_every_name_is_there_and_documented(module: object) -> None:
    for name in module.__all__:  # type: ignore[attr-defined]
        thing = getattr(module, name)
        assert isinstance(thing, dict) or inspect.getdoc(thing), f"{name} has no docstring"


@pytest.mark.parametrize("name", ["charts", "models"])
def test_packages_export_what_they_list(name: str) -> None:
    module = importlib.import_module(f"attnviz.{name}")
    for exported in module.__all__:
        assert hasattr(module, exported), f"attnviz.{name}.{exported}"


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'attnviz' has no attribute 'nothing'"):
        attnviz.nothing  # noqa: B018


def test_version_is_the_installed_one() -> None:
    from importlib.metadata import version

    assert attnviz.__version__ == version("attnviz")
