"""Texts to start from, each with something to find in it."""

EXAMPLES = {
    "Two banks": "The bank of the river was muddy, so she walked to the bank to deposit her money.",
    "Who is she?": "Alice told the doctor that she would call her as soon as the results arrived.",
    "It, twice": "The animal didn't cross the street because it was too tired. It slept by the fence until morning.",
    "A repeated pattern": "kite lamp river stone kite lamp river stone kite lamp river stone",
    "A list": "Buy apples, pears and plums; wash them, peel them, and cut them into small pieces.",
    "Code": "def area(radius):\n    return 3.14159 * radius ** 2\n\nprint(area(2))",
    "Many scripts": "Hello 世界, привет мир, שלום עולם, 👩‍🚀 and café.",
}
"""By the name shown for it."""

FIRST = EXAMPLES["Two banks"]
"""What the dashboard opens with."""
