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


def test_titles_of_charts_are_never_markup():
    from attnviz.dashboard.figures import heading

    title = heading({"text": "<img src=x> & 'b'", "subtitle": "</p><script>alert(1)</script>"})
    assert title == (
        '<p class="figure-title">&lt;img src=x&gt; &amp; &#x27;b&#x27;</p>'
        '<p class="figure-subtitle">&lt;/p&gt;&lt;script&gt;alert(1)&lt;/script&gt;</p>'
    )
    assert heading("a") == '<p class="figure-title">a</p>'
