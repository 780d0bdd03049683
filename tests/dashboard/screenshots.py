"""Pictures of every page, 1280 and 360 wide, light and dark, as palette PNGs in docs/screenshots."""

import importlib.util
import io
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlencode

from conftest import CHROMIUM_ARGUMENTS
from dashboard import browsing
from PIL import Image
from playwright.sync_api import sync_playwright

from attnviz.dashboard.shell import PAGES

ROOT = Path(__file__).parents[2]

TARGET = ROOT / "docs" / "screenshots"
SIZES = {"wide": {"width": 1280, "height": 900}, "narrow": {"width": 360, "height": 780}}
SCHEMES = ("light", "dark")
DOCTOR = "Alice told the doctor that she would call her as soon as the results arrived."
SHOWN = {
    "heads": {"view": "Maps"},
    "coreference": {"layer": 1, "head": 3},
    "dependencies": {"layer": 2, "head": 8},
    "alignment": {"model": "numbers.attn", "moment": "Row of the word", "gold": "0-0 2-1 4-2 5-3"},
    "walkthrough": {"model": "smollm2", "text": DOCTOR},
}
"""What the address says beside the page, where its own choice is not the most telling."""
COLOURS = 256


def write_numbers(path):
    """The run of an encoder-decoder that learned to write numbers in digits."""
    spec = importlib.util.spec_from_file_location("translation", ROOT / "examples" / "translation_alignment.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    example.main(600, path)


def main(names):
    """Take the pictures of the pages named, or of all."""
    TARGET.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        write_numbers(Path(folder) / "numbers.attn")
        take_all(names or PAGES, Path(folder), play)


def take_all(names, folder, play):
    """Every page in every size and scheme."""
    with browsing.serving(folder) as address:
        chromium = play.chromium.launch(executable_path=browsing.CHROMIUM, args=CHROMIUM_ARGUMENTS)
        for size, viewport in SIZES.items():
            for scheme in SCHEMES:
                context = chromium.new_context(viewport=viewport, color_scheme=scheme, device_scale_factor=1)
                for name in names:
                    take(context, address, name, TARGET / f"{name}-{size}-{scheme}.png")
                context.close()
        chromium.close()


def take(context, address, name, path):
    """One picture, once everything is drawn."""
    page = context.new_page()
    page.goto(f"{address}/{name if name != next(iter(PAGES)) else ''}?{urlencode(SHOWN.get(name, {}))}")
    browsing.settled(page)
    page.wait_for_function("!document.querySelector('.stSpinner, .stSkeleton')")
    page.wait_for_timeout(1500)
    picture = Image.open(io.BytesIO(page.screenshot()))
    palette = picture.convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    palette.save(path, optimize=True)
    print(path.relative_to(ROOT), f"{path.stat().st_size / 1024:.0f} KiB", flush=True)
    page.close()


if __name__ == "__main__":
    main(sys.argv[1:])
