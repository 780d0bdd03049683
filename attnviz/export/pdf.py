"""PDF with the same bytes for the same picture: the converter numbers and orders its objects differently every time."""

from __future__ import annotations

import re
from collections.abc import Iterator

_ENTRY = re.compile(rb"(\d{10}) \d{5} n")
_RESOURCES = re.compile(rb"(?<=<<\n)(?:\s*/[a-z]+\d+ \d+ 0 R\n){2,}")
"""Fonts, images and groups by the names that the page calls them."""
_STREAM = b"\nstream"
_REFERENCE = re.compile(rb"\b(\d+) 0 R\b")


def ordered(pdf: bytes) -> bytes:
    """The same document with resources sorted by name and objects numbered in the order of the references to them."""
    table = int(pdf[pdf.rindex(b"startxref") :].split()[1])
    trailer = pdf[pdf.index(b"trailer", table) : pdf.rindex(b"startxref")]
    bodies = dict(_objects(pdf, table))
    numbers = {old: new for new, old in enumerate(_reached(bodies, trailer), start=1)}

    def renumbered(text: bytes) -> bytes:
        return _REFERENCE.sub(lambda found: b"%d 0 R" % numbers[int(found[1])], text)

    out, entries = b"%PDF-1.7\n%\x80\x80\x80\x80\n\n", b""
    for old, new in numbers.items():
        entries += b"%010d 00000 n\r\n" % len(out)
        head, stream, content = bodies[old].partition(_STREAM)
        out += b"%d 0 obj" % new + renumbered(head) + stream + content
    cross = b"xref\n0 %d\n0000000000 65535 f\r\n" % (len(numbers) + 1) + entries
    size = re.sub(rb"/Size \d+", b"/Size %d" % (len(numbers) + 1), renumbered(trailer))
    return out + cross + size + b"startxref\n%d\n%%%%EOF" % len(out)


def _objects(pdf: bytes, table: int) -> Iterator[tuple[int, bytes]]:
    """Every object's number and what stands after its "obj"."""
    lines = pdf[table : pdf.index(b"trailer", table)].splitlines()
    offsets = sorted(int(found[1]) for line in lines if (found := _ENTRY.match(line)))
    for start, end in zip(offsets, [*offsets[1:], table], strict=True):
        name, _, body = pdf[start:end].partition(b" 0 obj")
        head, stream, content = body.partition(_STREAM)
        yield int(name), _RESOURCES.sub(_sorted, head) + stream + content


def _sorted(lines: re.Match[bytes]) -> bytes:
    return b"".join(sorted(lines[0].splitlines(keepends=True)))


def _reached(bodies: dict[int, bytes], trailer: bytes) -> list[int]:
    """The numbers of all objects in the order in which references lead to them."""
    found: dict[int, None] = {}
    waiting = [trailer]
    while waiting:
        text = waiting.pop(0).partition(_STREAM)[0]
        for number in map(int, _REFERENCE.findall(text)):
            if number not in found:
                found[number] = None
                waiting.append(bodies[number])
    return list(found)
