"""What tests of pages open and read."""

BANKS = "The bank of the river was muddy"


def charts(app):
    """What is drawn: charts and components."""
    return len(app.main.get("vega_lite_chart")) + len(app.main.get("bidi_component"))
