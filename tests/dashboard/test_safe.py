import pytest

from attnviz.dashboard.safe import plain


@pytest.mark.parametrize(
    ("text", "markdown"),
    [
        ("plain words", "plain words"),
        ("![](http://x)", r"\!\[\]\(http\:\/\/x\)"),
        ("<script>alert(1)</script>", r"\<script\>alert\(1\)\<\/script\>"),
        (":red[x] $x$ `x`", r"\:red\[x\] \$x\$ \`x\`"),
        ("two\n\nparagraphs", "two paragraphs"),
        ("\\", "\\\\"),
    ],
)
def test_every_sign_is_taken_literally(text, markdown):
    assert plain(text) == markdown
