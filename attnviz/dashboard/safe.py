"""Text that came from outside, made fit for places that would read it as markup."""

from __future__ import annotations

import re

_MARKDOWN = re.compile(r"([!-/:-@\[-`{-~])")


def plain(text: object) -> str:
    """The text as one markdown paragraph that shows exactly these characters.

    >>> plain("![](http://x) **bold**")
    '\\\\!\\\\[\\\\]\\\\(http\\\\:\\\\/\\\\/x\\\\) \\\\*\\\\*bold\\\\*\\\\*'
    """
    return _MARKDOWN.sub(r"\\\1", " ".join(str(text).split()))
