"""Tokens that try to be more than text."""

TOKENS = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "'+alert(3)+'",
    "datum['x'].y[0]",
    "[bold]rich[/bold]",
    "\x1b[31mred\x07",
    "a\u202eb",
    "line\nbreak\ttab",
    "\u05e9\u05dc\u05d5\u05dd",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "x" * 300,
    "bank",
    "bank",
)
