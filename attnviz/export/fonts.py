"""Which fonts pictures are drawn with: whether a family is there, and which characters no font has.

The converter draws nothing at all for a family it does not know, and boxes for characters that no font has; both are
found out beforehand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from functools import cache, lru_cache
from html import escape, unescape
from pathlib import Path
from typing import Any

from ..errors import UsageError
from .words import JOINERS

_FOLDERS = (
    "/usr/share/fonts",
    "/usr/local/share/fonts",
    "~/.fonts",
    "~/.local/share/fonts",
    "/System/Library/Fonts",
    "/Library/Fonts",
    "~/Library/Fonts",
    "C:/Windows/Fonts",
)
_ENDINGS = {".ttf", ".otf", ".ttc", ".otc"}
_BUILT_IN = ("Liberation Sans", "Liberation Serif", "Liberation Mono", "sans-serif", "serif", "monospace")
"""Families that the converter brings with it."""
_COVERED = (
    *(range(0x20, 0x180), range(0x384, 0x460), range(0x5D0, 0x5EB), range(0x2010, 0x2027), range(0x2066, 0x206A)),
    *(range(0x20AC, 0x20AD), range(0x2122, 0x2123), range(0x2190, 0x2196), range(0x2212, 0x2213)),
)
"""Characters that they have, or that are not drawn: Latin, Greek, Cyrillic, Hebrew, dashes and quotes, directional
isolates, the signs of the euro and of trade marks, arrows, minus."""
_TEXT = re.compile(r"(<text [^>]*>)((?:[^<]|</?tspan[^>]*>)+)</text>")
_TAG = re.compile(r"<[^>]*>")
_FAMILY = re.compile(r'font-family="[^"]*"')
_SPECIAL = re.compile(r"bold|italic|oblique|light|thin|heavy|black|condensed|narrow|mono|serif|math|medium", re.I)
"""What file names say of fonts that are not upright, of regular weight and without serifs."""


def use_folder(folder: Path) -> None:
    """Make the fonts in a folder available to pictures, or UsageError where it holds none."""
    import vl_convert

    if not any(_inside(folder)):
        raise UsageError(f"the folder {folder} holds no fonts (.ttf, .otf, .ttc): name one that does")
    vl_convert.register_font_directory(str(folder.resolve()))


def check_family(family: str, folders: Sequence[Path]) -> None:
    """UsageError unless a font of that family is installed, in one of the folders, or built in."""
    if family in _BUILT_IN:
        return
    known = {name for file in _files(folders) for name in _names(file)}
    if family not in known:
        near = get_close_matches(family, [*known, *_BUILT_IN], n=3, cutoff=0.5) or _BUILT_IN[:3]
        raise UsageError(f"no font {family!r} is installed: try {', '.join(sorted(near))}, or name its folder")


def missing(characters: Iterable[str], folders: Sequence[Path]) -> set[str]:
    """Those characters that neither a built-in nor an installed font, nor one in the folders, can draw."""
    left = {char for char in characters if not _covered(char)}
    for file in _files(folders):
        if not left:
            break
        left = {char for char in left if ord(char) not in _characters(file)}
    return left


def in_fonts(svg: str, family: str | None, folders: Sequence[Path]) -> str:
    """The picture with every text whose font lacks a character in one that has all of them, a plain font before others.

    The converter would take the first font that has the character, and that may be a bold one.
    """
    own = frozenset() if family is None or family in _BUILT_IN else _of_family(family, folders)

    @cache
    def other(text: str) -> str:
        letters = {char for char in unescape(_TAG.sub("", text)) if char not in JOINERS}
        lacking = {char for char in letters if (ord(char) not in own if own else not _covered(char))}
        return _family_with(letters, lacking, folders) if lacking else ""

    def changed(found: re.Match[str]) -> str:
        name = other(found[2])
        return found[0] if not name else _FAMILY.sub(f'font-family="{escape(name)}"', found[1]) + found[2] + "</text>"

    return _TEXT.sub(changed, svg)


def _of_family(family: str, folders: Sequence[Path]) -> frozenset[int]:
    """The characters of the first font of a family."""
    return next((_characters(file) for file in _files(folders) if family in _names(file)), frozenset())


def _family_with(letters: set[str], lacking: set[str], folders: Sequence[Path]) -> str:
    """The family of the first font that has all letters, or else those that are lacking; "" where none does."""
    if all(map(_covered, letters)):
        return _BUILT_IN[0]
    for wanted in (letters, lacking):
        for file in _files(folders):
            if {*map(ord, wanted)} <= _characters(file) and (names := _names(file)):
                return min(names, key=len)
    return ""


def _covered(char: str) -> bool:
    return any(ord(char) in block for block in _COVERED)


def _files(folders: Sequence[Path]) -> Iterator[Path]:
    """Font files in the folders and in the system's, in each plain ones first."""
    for folder in (*folders, *(Path(name).expanduser() for name in _FOLDERS)):
        yield from sorted(_inside(folder), key=lambda file: (len(_SPECIAL.findall(file.stem)), file))


def _inside(folder: Path) -> Iterator[Path]:
    yield from (file for file in sorted(folder.rglob("*")) if file.suffix.lower() in _ENDINGS)


@lru_cache(maxsize=1024)
def _characters(file: Path) -> frozenset[int]:
    return frozenset(_read(file, lambda font: font.getBestCmap() or ()))


@lru_cache(maxsize=1024)
def _names(file: Path) -> frozenset[str]:
    return frozenset(_read(file, lambda font: [str(r) for r in font["name"].names if r.nameID in (1, 16)]))


def _read(file: Path, take: Any) -> Any:
    """What `take` finds in the first font of a file; nothing where the file is no font after all."""
    from fontTools.ttLib import TTFont, TTLibError

    try:
        with file.open("rb") as opened, TTFont(opened, lazy=True, fontNumber=0) as font:
            return take(font)
    except (TTLibError, OSError, KeyError):
        return ()
