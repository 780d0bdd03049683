"""Imports point one way only; read from the source, nothing is imported."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
KERNELS = ROOT / "kernels" / "attnviz_kernels"
LIBRARY = ROOT / "attnviz"

LIBRARY_LAYERS = (
    {"errors", "axes"},
    {"arguments", "estimate", "numbers", "files", "typed"},
    {"tokens", "views", "composed", "statespace", "head", "trace", "variants", "storage"},
    {"models"},
    {"recording"},
    {"analysis"},
    {"charts"},
    {"viewer"},
    {"export"},
    {"cli", "__main__"},
    {"dashboard"},
)
KERNEL_LAYERS = (
    {"spec"},
    {"visibility", "checks"},
    {"reference", "blockwise", "native", "triton"},
    {"dispatch"},
)
"""From the bottom up: a module imports from lower layers, and from its own where that is one subject."""

SHORTHANDS = {
    ("head", "analysis"),
    ("head", "export"),
    ("trace", "analysis"),
    ("trace", "export"),
    ("charts", "export"),
}
"""`trace.heads()` is short for the function of analysis, which it imports when called; what shows itself in a notebook
asks export for the picture."""

Import = tuple[str, int, bool]


def sources(*folders: Path) -> list[Path]:
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def imports(path: Path, package: Path) -> Iterator[Import]:
    """(absolute name, line, whether it is there for type checkers only) of every import of a module."""
    parts = path.relative_to(package.parent).with_suffix("").parts
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno, id(node) in typing_only
        elif isinstance(node, ast.ImportFrom):
            base = ".".join((*parts[: len(parts) - node.level], node.module or "")).strip(".") if node.level else ""
            for alias in node.names:
                yield f"{base or node.module}.{alias.name}", node.lineno, id(node) in typing_only


def imported_modules(path: Path, package: Path) -> Iterator[tuple[str, int]]:
    """The modules of the same package that a module needs when it runs, by their first name below the package."""
    for name, line, typing_only in imports(path, package):
        below = name.split(".")
        if below[0] == package.name and len(below) > 1 and not typing_only:
            yield below[1], line


def level(name: str, layers: tuple[set[str], ...]) -> int | None:
    return next((rank for rank, names in enumerate(layers) if name in names), None)


def place(path: Path, package: Path) -> str:
    return path.relative_to(package).with_suffix("").parts[0]


@pytest.mark.parametrize("path", sources(LIBRARY), ids=lambda path: str(path.relative_to(ROOT)))
def test_library_imports_point_upwards_in_the_design(path: Path) -> None:
    own = place(path, LIBRARY)
    if own == "__init__":
        return
    rank = level(own, LIBRARY_LAYERS)
    assert rank is not None, f"{own} is in no layer: add it to LIBRARY_LAYERS"
    for name, line in imported_modules(path, LIBRARY):
        other = level(name, LIBRARY_LAYERS)
        if (own, name) in SHORTHANDS:
            continue
        assert other is None or other <= rank, f"{path}:{line} imports {name}, which lies above {own}"
        assert rank > 0 or other is None, f"{path}:{line}: {own} imports nothing of ours"


@pytest.mark.parametrize("path", sources(KERNELS), ids=lambda path: path.name)
def test_kernel_backends_import_the_contract_and_not_each_other(path: Path) -> None:
    own = place(path, KERNELS).split("_")[0]
    if path.stem == "__init__":
        return
    rank = level(own, KERNEL_LAYERS)
    assert rank is not None, f"{own} is in no layer: add it to KERNEL_LAYERS"
    for name, line in imported_modules(path, KERNELS):
        family = name.split("_")[0]
        other = level(family, KERNEL_LAYERS)
        assert other is None or other < rank or family == own, f"{path}:{line} imports {name} from {own}"


@pytest.mark.parametrize("path", sources(KERNELS), ids=lambda path: path.name)
def test_kernels_need_torch_only_and_triton_its_own_files(path: Path) -> None:
    for name, line, _ in imports(path, KERNELS):
        first = name.split(".")[0]
        assert first not in ("attnviz", "transformers", "numpy", "pandas"), f"{path}:{line} imports {name}"
        assert first != "triton" or path.stem.startswith("triton_"), f"{path}:{line} imports triton"


@pytest.mark.parametrize("path", sources(LIBRARY), ids=lambda path: str(path.relative_to(ROOT)))
def test_only_the_dashboard_imports_streamlit_and_no_one_triton(path: Path) -> None:
    for name, line, _ in imports(path, LIBRARY):
        first = name.split(".")[0]
        assert first != "triton", f"{path}:{line} imports triton"
        assert first != "streamlit" or place(path, LIBRARY) == "dashboard", f"{path}:{line} imports streamlit"


def test_kernels_folder_is_no_package() -> None:
    """With an __init__.py it would shadow Hugging Face's `kernels` for whoever runs from here."""
    assert not (ROOT / "kernels" / "__init__.py").exists()
    for path in sources(LIBRARY, KERNELS, ROOT / "tests", ROOT / "examples"):
        for name, line, _ in imports(path, path.parent):
            assert name.split(".")[0] != "kernels", f"{path}:{line} imports kernels"


def test_app_stays_a_few_lines() -> None:
    assert len((ROOT / "app.py").read_text(encoding="utf-8").splitlines()) <= 15


def test_the_reader_of_imports_reads_all_kinds(tmp_path: Path) -> None:
    module = tmp_path / "pack" / "sub" / "module.py"
    module.parent.mkdir(parents=True)
    module.write_text(
        "import a.b\nfrom c import d\nfrom . import e\nfrom ..f import g\n"
        "if TYPE_CHECKING:\n    from ..h import i\ndef j():\n    from pack.k import l\n"
    )
    found = {name for name, _, typing_only in imports(module, tmp_path / "pack") if not typing_only}
    assert found == {"a.b", "c.d", "pack.sub.e", "pack.f.g", "pack.k.l"}
    assert {name for name, _ in imported_modules(module, tmp_path / "pack")} == {"sub", "f", "k"}
