from attnviz.dashboard.address import ignored, unknown


def test_what_is_offered_or_not_asked_for_needs_no_words():
    assert unknown("Layer", ["0", "1"], None, "0") is None
    assert unknown("Layer", ["0", "1"], "1", "0") is None


def test_what_is_missing_is_named_with_what_there_is():
    numbers = unknown("Layer", ["0", "1", "2"], "7", "0")
    assert numbers == "Layer '7' from the address does not exist here, showing 0: there is 0 to 2"
    words = unknown("View", ["Grid", "Maps"], "<b>", "Grid")
    assert words == "View '<b>' from the address does not exist here, showing Grid: there is Grid, Maps"


def test_what_the_address_says_in_vain_is_repeated_in_part():
    assert ignored(["heda = 3"]) == "This page has no place for what the address says of heda = 3: it is left out."
    many = ignored([f"x{place} = {'y' * 500}" for place in range(9)])
    assert "x3 = y" in many
    assert "x4" not in many
    assert many.endswith("… and 5 more: it is left out.")
    assert len(many) < 400
