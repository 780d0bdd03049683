"""What tests of commands share."""

import json

TEXT = "The bank of the river was muddy."


def records(printed):
    return json.loads(printed.out)
