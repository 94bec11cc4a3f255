"""Where `dualar say` writes: to a file or standard output, all at once or as the speech is made, and at which level.

Owns the checks of these options together, before any work. Leaves writing whole files to `speaking.py` and
`narrating.py`, and chunks as they come to `streaming.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from dualar.cli import common, streaming

if TYPE_CHECKING:
    from dualar.audio.clip import Audio
    from dualar.audio.wav import Subtype


@dataclass(frozen=True, kw_only=True)
class Levels:
    """What is done to the whole speech: silence cut at its end; a loudness in LUFS; a peak in dB of full scale."""

    trim_silence: bool = False
    peak: float | None = None
    loudness: float | None = None

    @property
    def any(self) -> bool:
        """Whether there is anything to do."""
        return self != Levels()

    def applied(self, audio: Audio) -> Audio:
        """The clip, trimmed and scaled as asked for."""
        if self.trim_silence:
            audio = audio.trim_silence()
        if self.loudness is not None:
            return audio.normalize_loudness(self.loudness, peak_db=-1.0 if self.peak is None else self.peak)
        return audio if self.peak is None else audio.normalize_peak(self.peak)


@dataclass(frozen=True, kw_only=True)
class Output:
    """path: the file, or STDOUT. codes, subtitles: files for these too. streamed: written as the speech is made.

    cadence: frames of each chunk, None where they were not given. raw: standard output without a WAV header.
    """

    path: Path
    codes: Path | None
    subtitles: Path | None
    subtype: Subtype
    streamed: bool
    cadence: list[int] | None
    raw: bool
    levels: Levels

    @classmethod
    def of(
        cls,
        path: Path,
        *,
        codes: Path | None,
        subtitles: Path | None,
        subtype: Subtype,
        stream: bool,
        frames_per_chunk: str | None,
        stdout_format: str | None,
        levels: Levels,
    ) -> Output:
        """The options as they were given; a usage error where they do not go together."""
        to_stdout = path == streaming.STDOUT
        streamed = stream or to_stdout
        if streamed and levels.any:
            raise typer.BadParameter("--trim-silence, --peak and --loudness need the whole speech: not with a stream.")
        if frames_per_chunk is not None and not streamed:
            raise typer.BadParameter("--frames-per-chunk is for --stream and -o -.")
        if stdout_format is not None and not to_stdout:
            raise typer.BadParameter("--format is for -o -; a file is always a WAV.")
        return cls(
            path=path,
            codes=codes,
            subtitles=subtitles,
            subtype=subtype,
            streamed=streamed,
            cadence=None if frames_per_chunk is None else streaming.read_cadence(frames_per_chunk),
            raw=to_stdout and stdout_format != "wav",
            levels=levels,
        )

    @property
    def is_stdout(self) -> bool:
        """Whether it is standard output."""
        return self.path == streaming.STDOUT

    @property
    def name(self) -> str:
        """The output's name in a message."""
        return "standard output" if self.is_stdout else str(self.path)

    def check(self, *, force: bool) -> None:
        """Refuse, before any work, files that cannot be written or may not be replaced."""
        from dualar.audio.wav import check_wav_path
        from dualar.narration.subtitles import check_subtitle_path

        if self.is_stdout:
            streaming.check_stdout()
        else:
            check_wav_path(self.path)
            common.check_output(self.path, force=force)
        if self.codes is not None:
            common.check_codes_output(self.codes, force=force)
        if self.subtitles is not None:
            check_subtitle_path(self.subtitles)
            common.check_output(self.subtitles, force=force)
