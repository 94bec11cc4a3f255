"""`dualar say --phonemes`: what would be said, piece by piece, without saying it. Owns its option and
--lexicon's.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dualar.cli import common

if TYPE_CHECKING:
    from dualar.text.frontend import TextFrontend

LexiconOption = Annotated[
    Path | None,
    typer.Option(
        "--lexicon",
        metavar="FILE",
        help="How to say words: in each line one and its phonemes, for a model that reads phonemes.",
        show_default="none",
    ),
]
PhonemesOption = Annotated[
    bool, typer.Option("--phonemes", help="Print the phonemes that would be said, a line for each piece, and end.")
]


def show(text: str, model: Path, lexicon: Path | None) -> None:
    """Print the phonemes of each piece that the text would be cut into, and tell of words that are guessed."""
    from dualar.families.registry import family_of
    from dualar.narration.plan import plan
    from dualar.runtime import open_file
    from dualar.text.frontend import read_lexicon

    family = family_of(open_file(model))
    if lexicon is not None:
        family.take_lexicon(read_lexicon(lexicon))
    if family.frontend is None:
        common.fail(f"[phonemes] expected a model that reads phonemes, got {model}, which reads letters", common.FAILED)
    for piece in plan(text, longest_text=family.longest_text).pieces:
        typer.echo(family.frontend.speak(piece.text).phonemes)
    tell_of_guesses(family.frontend, text)


def tell_of_guesses(frontend: TextFrontend | None, text: str) -> None:
    """Tell which words a front end does not know, so that a wrong guess is no riddle."""
    if frontend is not None and (unknown := frontend.unknown_words(text)):
        shown = ", ".join(unknown[:10]) + (", …" if len(unknown) > 10 else "")
        common.note(f"guessed from their letters: {shown}; correct them with /…/ or --lexicon")
