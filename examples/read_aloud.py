"""Read a web page or an EPUB aloud: one sound file for each chapter.

    python examples/read_aloud.py BOOK.epub|PAGE.html FOLDER [--model MODEL.gguf] [--voice NAME]

Each chapter has a job beside it, so that the same command goes on after an interruption.
"""

import argparse
import zipfile
from html.parser import HTMLParser
from pathlib import Path

import dualar

BLOCKS, SILENT = {"p", "h1", "h2", "h3", "li", "blockquote", "div", "tr"}, {"script", "style", "head", "nav"}


class Paragraphs(HTMLParser):
    """The text of a page: paragraphs apart by blank lines; scripts, styles and menus left out."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text, self.silent = "", 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.silent += tag in SILENT
        self.text += "\n\n" if tag in BLOCKS else ""

    def handle_endtag(self, tag: str) -> None:
        self.silent -= tag in SILENT

    def handle_data(self, data: str) -> None:
        self.text += "" if self.silent else data


def chapters(source: Path) -> list[str]:
    """The texts of an EPUB's pages (by name, which is mostly their order), or of one web page."""
    if zipfile.is_zipfile(source):
        with zipfile.ZipFile(source) as book:
            pages = [book.read(name).decode() for name in sorted(book.namelist()) if name.endswith(("html", ".htm"))]
    else:
        pages = [source.read_text(encoding="utf-8")]
    return [text for page in pages if (text := Paragraphs(page).text.strip())]


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
for name in ("source", "folder"):
    parser.add_argument(name, type=Path)
parser.add_argument("--model")
parser.add_argument("--voice")
options = parser.parse_args()
options.folder.mkdir(exist_ok=True)
with dualar.load(options.model) as engine:
    for number, text in enumerate(chapters(options.source), 1):
        path = options.folder / f"{number:03}.wav"
        narration = engine.narrate(text, voice=options.voice, seed=7, job=path.with_suffix(".job"))
        narration.save(path)
        print(path, f"{narration.duration:.1f} s, {len(narration.failed)} pieces left out")
