"""Annotated text from files: inline brackets, CoNLL-2012, CoNLL-U (dependencies, Entity=), GAP, jsonlines.

Every reader refuses a broken file with one line that names the file and the line number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..errors import DataError
from ..numbers import many
from .documents import Document, Mention, document, head_by_rule, head_by_syntax, ordered, sentence_ranges

FORMATS = ("brackets", "conll", "conllu", "gap", "jsonlines")
_ENDINGS = {
    ".txt": "brackets",
    ".conll": "conll",
    ".v4_gold_conll": "conll",
    ".conllu": "conllu",
    ".tsv": "gap",
    ".jsonl": "jsonlines",
    ".jsonlines": "jsonlines",
}
_NOTE = re.compile(r"(?i)licen[cs]e|readme")
_WORD = re.compile(r"\w+(?:-\w+)*|['’]\w+|[^\w\s]")
_ENTITY = re.compile(r"\(([^()\s-]+)(?:-[^()]*)?\)|\(([^()\s-]+)(?:-[^()]*)?|([^()\s-]+)\)")


def read(path: str | Path, format: str | None = None) -> list[Document]:
    """The documents of a file or of every file in a folder; the format by ending unless given.

    Raises DataError for an unknown format, a missing file or broken contents.
    """
    path = Path(path)
    if path.is_dir():
        files = sorted(
            file for file in path.iterdir() if _kind(file, format, strict=False) and not _NOTE.match(file.name)
        )
        if not files:
            raise DataError(f"{path} holds no file with one of the endings {', '.join(_ENDINGS)}")
        return [found for file in files for found in read(file, format)]
    if not path.is_file():
        raise DataError(f"{path} does not exist: give a file or a folder of files")
    return parse(path.read_bytes(), path, format)


def parse(content: bytes, path: str | Path, format: str | None = None) -> list[Document]:
    """The documents in the content of a file, whose ending says its format unless given; raises as `read` does."""
    path = Path(path)
    kind = _kind(path, format, strict=True)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text (byte {error.start}): convert it first") from None
    readers = {"brackets": _brackets_file, "conll": conll, "conllu": conllu, "gap": gap, "jsonlines": jsonlines}
    found = readers[kind](text, path.name)
    if not found:
        raise DataError(f"{path} holds no document in {kind} format")
    return found


def _kind(path: Path, format: str | None, strict: bool) -> str:
    if format is not None:
        if format not in FORMATS:
            raise DataError(f"format must be one of {', '.join(FORMATS)}, got {format!r}")
        return format
    kind = _ENDINGS.get(path.suffix, "")
    if not kind and strict:
        raise DataError(f"the ending of {path.name} names no format: give one of {', '.join(FORMATS)}")
    return kind


def _lines(text: str) -> list[str]:
    """The lines of a file. A text may hold separators, such as U+2028, at which `str.splitlines` would cut it."""
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def brackets(text: str, name: str = "text") -> Document:
    """Inline brackets: "[Alice]1 met [the doctor]2 because [she]1 was ill." Brackets may nest.

    Words are cut at white space and around punctuation; the number (or name) behind a bracket is the cluster.
    """
    words: list[str] = []
    opened: list[int] = []
    clusters: dict[str, list[tuple[int, ...]]] = {}
    for piece in re.finditer(r"\[|\](\w+)|\]|[^\[\]]+", text):
        part = piece.group()
        if part == "[":
            opened.append(len(words))
        elif part.startswith("]"):
            if piece.group(1) is None:
                raise DataError(f'{name}: the "]" at character {piece.start() + 1} has no cluster behind it: write ]1')
            if not opened:
                raise DataError(f'{name}: the "]" at character {piece.start() + 1} closes no bracket')
            clusters.setdefault(piece.group(1), []).append((opened.pop(), len(words)))
        else:
            words += _WORD.findall(part)
    if opened:
        place = f"before the word {words[opened[-1]]!r}" if opened[-1] < len(words) else "at the end"
        raise DataError(f"{name}: a bracket is not closed, {place}: write ] and the cluster's number behind its words")
    empty = next((cluster for cluster, spans in clusters.items() for span in spans if span[0] == span[1]), None)
    if empty is not None:
        raise DataError(f"{name}: a bracket of cluster {empty} holds no word")
    if not clusters:
        raise DataError(f"{name}: no mention is marked: write [Alice]1 ... [she]1")
    return document(words, clusters, name)


def _brackets_file(text: str, name: str) -> list[Document]:
    lines = [(number, line) for number, line in enumerate(_lines(text), 1) if line.strip()]
    return [brackets(line, f"{name} line {number}") for number, line in lines]


def conll(text: str, name: str = "conll") -> list[Document]:
    """CoNLL-2012 columns: word in column 4, clusters in the 13th or last as (12, 12), (12) joined by |."""
    found: list[Document] = []
    words: list[str] = []
    sentences: list[tuple[int, int]] = []
    marks: list[tuple[int, int, str]] = []
    title, begun = name, 0

    def close() -> None:
        nonlocal words, sentences, marks, begun
        if words:
            if begun < len(words):
                sentences.append((begun, len(words)))
            spans = _spans(marks, name)
            mentions = tuple(Mention(a, b, head_by_rule(words, a, b), cluster) for a, b, cluster in spans)
            found.append(ordered(Document(title, tuple(words), tuple(sentences), mentions)))
        words, sentences, marks, begun = [], [], [], 0

    for number, line in enumerate(_lines(text), 1):
        if line.startswith("#begin document"):
            close()
            match = re.search(r"\(([^)]*)\)", line)
            title = match.group(1) if match else name
        elif line.startswith("#"):
            continue
        elif not line.strip():
            if begun < len(words):
                sentences.append((begun, len(words)))
                begun = len(words)
        else:
            columns = line.rstrip("\n").split("\t") if "\t" in line else line.split()
            if len(columns) < 5:
                raise DataError(
                    f"{name} line {number}: a CoNLL line has at least 5 columns, this one {len(columns)}:"
                    " write the word in the 4th, clusters in the last"
                )
            words.append(columns[3])
            cell = columns[12] if "\t" in line and len(columns) >= 13 else columns[-1]
            marks += [(len(words) - 1, number, part) for part in cell.strip().split("|") if part.strip("_- ")]
    close()
    return found


def conllu(text: str, name: str = "conllu") -> list[Document]:
    """CoNLL-U: words, UPOS, XPOS, heads, relations, and mentions from Entity= in MISC where there are any.

    Range rows (1-2) and empty nodes (8.1) are skipped. A document begins at "# newdoc"; one whose column HEAD is _
    throughout has no heads and relations, and the head words of its mentions are found by rule.
    """
    blocks: list[tuple[str, list[list[tuple[int, list[str]]]]]] = []
    for number, line in enumerate(_lines(text), 1):
        if line.startswith("# newdoc"):
            blocks.append((line.partition("=")[2].strip() or name, [[]]))
        elif not line.strip():
            if blocks and blocks[-1][1][-1]:
                blocks[-1][1].append([])
        elif not line.startswith("#"):
            columns = line.split("\t")
            if len(columns) != 10:
                raise DataError(
                    f"{name} line {number}: a CoNLL-U line has 10 columns, this one {len(columns)}:"
                    " put tabs between them"
                )
            if not blocks:
                blocks.append((name, [[]]))
            if "-" not in columns[0] and "." not in columns[0]:
                blocks[-1][1][-1].append((number, columns))
    return [_conllu_document(title, [s for s in sentences if s], name) for title, sentences in blocks if any(sentences)]


def _conllu_document(title: str, sentences: list[list[tuple[int, list[str]]]], name: str) -> Document:
    rows = [row for sentence in sentences for row in sentence]
    marks = [
        (index, number, match.group())
        for index, (number, columns) in enumerate(rows)
        for field in columns[9].split("|")
        if field.startswith("Entity=")
        for match in _ENTITY.finditer(field[len("Entity=") :])
    ]
    words, relations, upos, xpos = (tuple(columns[k] for _, columns in rows) for k in (1, 7, 3, 4))
    heads = None if all(columns[6] == "_" for _, columns in rows) else _heads(sentences, name)
    mentions = [
        Mention(a, b, head_by_rule(words, a, b) if heads is None else head_by_syntax(heads, a, b), cluster)
        for a, b, cluster in _spans(marks, name)
    ]
    ranges = tuple(_lengths(sentences))
    return ordered(
        Document(title, words, ranges, tuple(mentions), heads, None if heads is None else relations, upos, xpos)
    )


def _heads(sentences: list[list[tuple[int, list[str]]]], name: str) -> tuple[int, ...]:
    """Each word's head as an index over all sentences, itself for a root."""
    heads: list[int] = []
    for sentence in sentences:
        begun = len(heads)
        for offset, (number, columns) in enumerate(sentence):
            if not columns[6].isdecimal() or int(columns[6]) > len(sentence):
                raise DataError(f"{name} line {number}: the head must be 0 to {len(sentence)}, got {columns[6]!r}")
            head = int(columns[6])
            heads.append(begun + (head - 1 if head else offset))
    return tuple(heads)


def _spans(marks: Iterable[tuple[int, int, str]], name: str) -> list[tuple[int, int, str]]:
    """(start, stop, cluster) from marks (word, line, "(c", "c)" or "(c)"); GUM's "c-..." details are cut off."""
    opened: dict[str, list[tuple[int, int]]] = {}
    spans = []
    for word, number, mark in marks:
        match = _ENTITY.fullmatch(mark.strip())
        if match is None:
            raise DataError(f"{name} line {number}: {mark!r} is no mention: write (1, 1) or (1)")
        whole, begins, ends = match.groups()
        if whole:
            spans.append((word, word + 1, whole))
        elif begins:
            opened.setdefault(begins, []).append((word, number))
        elif not opened.get(ends):
            raise DataError(f"{name} line {number}: a mention of cluster {ends} ends that never began")
        else:
            spans.append((opened[ends].pop()[0], word + 1, ends))
    left = [(number, cluster) for cluster, starts in opened.items() for _, number in starts]
    if left:
        raise DataError(f"{name} line {min(left)[0]}: a mention of cluster {min(left)[1]} begins that never ends")
    return spans


GAP_COLUMNS = ("ID", "Text", "Pronoun", "Pronoun-offset", "A", "A-offset", "A-coref", "B", "B-offset", "B-coref")


def gap(text: str, name: str = "gap") -> list[Document]:
    """GAP's table (Webster et al. 2018, arXiv 1810.05201): one document a line, clusters "A", "B" with the pronoun.

    The pronoun belongs to the cluster of the name that is TRUE; where neither is, the line has no coreferent pair and
    is left out.
    """
    rows = [line.split("\t") for line in _lines(text)]
    missing = [column for column in GAP_COLUMNS if not rows or column not in rows[0]]
    if missing:
        raise DataError(f"{name}: the header lacks {', '.join(missing)}: a GAP file has {', '.join(GAP_COLUMNS)}")
    found = []
    for number, cells in enumerate(rows[1:], 2):
        if len(cells) != len(rows[0]):
            raise DataError(f"{name} line {number}: has {len(cells)} columns, the header {len(rows[0])}")
        row = dict(zip(rows[0], cells, strict=True))
        parsed = _gap_row(row, f"{name} line {number}")
        if parsed is not None:
            found.append(parsed)
    return found


def _gap_row(row: dict[str, str], place: str) -> Document | None:
    text = row["Text"]
    pieces = list(_WORD.finditer(text))
    spans: dict[str, list[tuple[int, ...]]] = {"A": [], "B": []}
    for who, column in (("A", "A"), ("B", "B"), ("pronoun", "Pronoun")):
        offset = row[f"{column}-offset"]
        if not row[column] or not offset.isdecimal() or not text.startswith(row[column], int(offset)):
            raise DataError(f"{place}: {column} {row[column]!r} does not stand at character {offset} of the text")
        begin, end = int(offset), int(offset) + len(row[column])
        inside = [index for index, piece in enumerate(pieces) if piece.start() < end and piece.end() > begin]
        if not inside:
            raise DataError(f"{place}: {column} {row[column]!r} holds no word")
        clusters = [who] if who != "pronoun" else [c for c in "AB" if row[f"{c}-coref"].upper() == "TRUE"]
        for cluster in clusters:
            # the head of a name is its last word
            spans[cluster].append((inside[0], inside[-1] + 1, inside[-1]))
    if max(len(found) for found in spans.values()) < 2:
        return None
    return document([piece.group() for piece in pieces], spans, row["ID"])


def jsonlines(text: str, name: str = "jsonlines") -> list[Document]:
    """One JSON object a line: {"words": [...]} or {"sentences": [[...]]}, "clusters": [[[start, end], ...]], inclusive.

    The format most coreference systems write: ends are inclusive, clusters are lists of spans over all words.
    """
    found = []
    for number, line in enumerate(_lines(text), 1):
        if not line.strip():
            continue
        place = f"{name} line {number}"
        try:
            entry = json.loads(line)
            sentences = entry.get("sentences")
            words = [word for sentence in sentences for word in sentence] if sentences else entry["words"]
            words = [str(word) for word in words]
            clusters = {
                str(index): [(int(span[0]), int(span[1]) + 1, *map(int, span[2:3])) for span in spans]
                for index, spans in enumerate(entry["clusters"])
            }
        except (AttributeError, ValueError, KeyError, TypeError, IndexError):
            raise DataError(
                f'{place}: expected {{"words": [...], "clusters": [[[start, end], ...], ...]}} with inclusive ends'
            ) from None
        for cluster, mentions in clusters.items():
            for first, stop, *_ in mentions:
                if not 0 <= first < stop <= len(words):
                    raise DataError(
                        f"{place}: cluster {cluster} has a mention [{first}, {stop - 1}], outside the text of"
                        f" {many(len(words), 'word')}: give its first and last word, counted from 0"
                    )
        parsed = document(words, clusters, str(entry.get("doc_key", place)))
        ranges = _lengths(sentences) if sentences else sentence_ranges(words)
        found.append(Document(parsed.name, parsed.words, ranges, parsed.mentions))
    return found


def _lengths(sentences: Sequence[Sequence[Any]]) -> tuple[tuple[int, int], ...]:
    ranges, place = [], 0
    for sentence in sentences:
        ranges.append((place, place + len(sentence)))
        place += len(sentence)
    return tuple(ranges)
