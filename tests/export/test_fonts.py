"""Fonts: families that are there, characters that are not."""

import re
import warnings
from io import BytesIO

import pypdf
import pytest
from traces import make_trace

from attnviz.errors import UsageError
from attnviz.export import Look, figure, fonts, render


@pytest.fixture
def folder(tmp_path):
    """A folder with a font that has only the letter A and U+12000, called Tiny Cuneiform."""
    from fontTools.fontBuilder import FontBuilder
    from fontTools.pens.ttGlyphPen import TTGlyphPen

    pen = TTGlyphPen(None)
    for point in ((100, 0), (100, 700), (600, 700), (600, 0)):
        (pen.lineTo if pen.points else pen.moveTo)(point)
    pen.closePath()
    box = pen.glyph()
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder([".notdef", "A", "sign"])
    builder.setupCharacterMap({65: "A", 0x12000: "sign"})
    builder.setupGlyf({".notdef": box, "A": box, "sign": box})
    builder.setupHorizontalMetrics(dict.fromkeys((".notdef", "A", "sign"), (700, 100)))
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": "Tiny Cuneiform", "styleName": "Regular", "psName": "TinyCuneiform-Regular"})
    builder.setupOS2()
    builder.setupPost()
    builder.save(tmp_path / "tiny.ttf")
    (tmp_path / "broken.otf").write_bytes(b"no font")
    return tmp_path


def test_folder_with_a_font_covers_its_characters(folder):
    assert fonts.missing("A\U00012000\U00012001", ()) == {"\U00012000", "\U00012001"}
    assert fonts.missing("A\U00012000\U00012001", (folder,)) == {"\U00012001"}


def test_built_in_characters_are_never_missing():
    assert fonts.missing("naïve ёж αβγ – “x” … \u2068\u2069", ()) == set()


def test_built_in_characters_are_drawn_with_the_built_in_font():
    import vl_convert

    for block in fonts._COVERED[:-4]:
        text = "".join(f"&#{code};" for code in block if chr(code).isprintable() and not chr(code).isspace())
        mark = f'<text y="9" font-family="Liberation Sans">{text}</text>'
        pdf = vl_convert.svg_to_pdf(f'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9">{mark}</svg>')
        assert {name for name in re.findall(rb"\+([\w-]+)", pdf) if b"Sans" in name} <= {b"LiberationSans"}


TEXT = '<text font-size="9px" font-family="Liberation Sans, Arial" fill="#000">{}</text>'


def test_a_text_is_drawn_in_one_plain_font_that_has_all_of_it(folder, monkeypatch):
    monkeypatch.setattr(fonts, "_FOLDERS", ())
    (folder / "a-bold.ttf").write_bytes((folder / "tiny.ttf").read_bytes())
    assert [file.name for file in fonts._files((folder,))] == ["broken.otf", "tiny.ttf", "a-bold.ttf"]
    other = 'font-family="Tiny Cuneiform"'
    for text in ("A\U00012000", "<tspan>A</tspan><tspan>\U00012000</tspan>", "x\U00012000"):
        found = fonts.in_fonts(TEXT.format(text), None, (folder,))
        assert other in found
        assert found.endswith(f">{text}</text>")
    for text in ("A", "naïve &amp; שלום", "\U00012001"):
        assert fonts.in_fonts(TEXT.format(text), None, (folder,)) == TEXT.format(text)


def test_what_a_chosen_font_lacks_is_drawn_in_the_built_in_one(folder):
    assert 'font-family="Liberation Sans"' in fonts.in_fonts(TEXT.format("bank"), "Tiny Cuneiform", (folder,))
    assert "Arial" in fonts.in_fonts(TEXT.format("AA"), "Tiny Cuneiform", (folder,))
    assert "Arial" in fonts.in_fonts(TEXT.format("bank"), "Liberation Serif", (folder,))


def test_family(folder):
    fonts.check_family("Tiny Cuneiform", (folder,))
    fonts.check_family("Liberation Serif", ())
    with pytest.raises(UsageError, match=r"^no font 'Tiny Cuneiforms' is installed: try Tiny Cuneiform, or name its"):
        fonts.check_family("Tiny Cuneiforms", (folder,))
    with pytest.raises(UsageError, match=r"^no font 'Tiny Cuneiform' is installed: try "):
        fonts.check_family("Tiny Cuneiform", ())


def test_folder_without_fonts(tmp_path):
    with pytest.raises(UsageError, match=r" holds no fonts \(\.ttf, \.otf, \.ttc\): name one that does$"):
        fonts.use_folder(tmp_path)


def text_of(pdf):
    return pypdf.PdfReader(BytesIO(pdf)).pages[0].extract_text()


def test_missing_characters_are_drawn_by_their_numbers_and_told(recwarn):
    trace = make_trace(("bank", "\U00012001"), 1, 1)
    with pytest.warns(UserWarning, match=r"^no font has 1 of the characters, they are drawn as <U\+12001>: install a"):
        pdf = render(figure(trace), "pdf")
    assert text_of(pdf).count("<U+12001>") == 2


def test_svg_html_and_numbers_keep_every_character():
    trace = make_trace(("bank", "\U00012001"), 1, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind in ("svg", "html", "json", "csv"):
            assert "\U00012001" in render(figure(trace), kind).decode()


def test_joined_emoji_lose_their_joiners(monkeypatch):
    monkeypatch.setattr(fonts, "_FOLDERS", ())
    with pytest.warns(UserWarning, match=r"^no font has 2 of the characters"):
        pdf = render(figure(make_trace(("bank", "👨\u200d👩"), 1, 1)), "pdf")
    assert "<U+1F468><U+1F469>" in text_of(pdf).replace("\n", "")


def test_font_of_a_folder_is_drawn_with(folder):
    trace = make_trace(("A", "\U00012000"), 1, 1)
    pdf = render(figure(trace), "pdf", Look(font="Tiny Cuneiform", font_folders=(folder,)))
    found = pypdf.PdfReader(BytesIO(pdf)).pages[0]["/Resources"]["/Font"]
    assert any("Tiny" in font["/BaseFont"] for font in found.values())


def test_font_names_cannot_end_a_style(trace):
    html = render(figure(trace), "html", Look()).decode()
    from attnviz.export.page import page

    spec = figure(trace).chart().to_dict() | {"config": {"font": "x;} </style><script>alert(1)</script>"}}
    assert "</style><script>alert" not in page(spec)
    assert html.count("<script") == 2
