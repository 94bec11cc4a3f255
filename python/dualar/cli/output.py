"""Where `dualar say` writes: to a file, standard output or the system's audio, at once or as the speech is made, and at
which level.

Owns the checks of these options together, before any work. Leaves writing whole files to `speaking.py` and
`narrating.py`, chunks as they come to `streaming.py`, and players to `playing.py`.
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
    from dualar.cli.playing import Player


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
    """path: the file, STDOUT or PLAYER. codes, subtitles: files for these too. streamed: written as the speech is made.

    cadence: frames of each chunk, None where they were not given. raw: no WAV header. player: of PLAYER.
    """

    path: Path
    codes: Path | None
    subtitles: Path | None
    subtype: Subtype
    streamed: bool
    cadence: list[int] | None
    raw: bool
    levels: Levels
    player: Player | None = None

    @classmethod
    def of(
        cls,
        path: Path | None,
        *,
        codes: Path | None,
        subtitles: Path | None,
        subtype: Subtype,
        stream: bool,
        frames_per_chunk: str | None,
        stdout_format: str | None,
        levels: Levels,
    ) -> Output:
        """The options as they were given; a usage error where they do not go together, a failure where no file was
        named and no player is there."""
        to_stdout, played = path == streaming.STDOUT, path is None
        streamed = stream or to_stdout or played
        if streamed and levels.any:
            raise typer.BadParameter(
                "--trim-silence, --peak and --loudness need the whole speech: with -o FILE, and not with a stream."
            )
        if frames_per_chunk is not None and not streamed:
            raise typer.BadParameter("--frames-per-chunk is for --stream, for -o - and for playing.")
        if stdout_format is not None and not to_stdout:
            raise typer.BadParameter("--format is for -o -; a file is always a WAV.")
        if played and subtype != "PCM_16":
            raise typer.BadParameter("--subtype is for -o.")
        player = None
        if played:
            from dualar.cli.playing import find_player

            player = find_player()
        return cls(
            path=streaming.PLAYER if path is None else path,
            codes=codes,
            subtitles=subtitles,
            subtype=subtype,
            streamed=streamed,
            cadence=None if frames_per_chunk is None else streaming.read_cadence(frames_per_chunk),
            raw=(to_stdout and stdout_format != "wav") if player is None else player.raw,
            levels=levels,
            player=player,
        )

    @property
    def is_stdout(self) -> bool:
        """Whether it is standard output."""
        return self.path == streaming.STDOUT

    @property
    def is_file(self) -> bool:
        """Whether it is a file that was named."""
        return self.path not in (streaming.STDOUT, streaming.PLAYER)

    @property
    def name(self) -> str:
        """The output's name in a message."""
        return "standard output" if self.is_stdout else "played" if self.player is not None else str(self.path)

    def check(self, *, force: bool) -> None:
        """Refuse, before any work, files that cannot be written or may not be replaced."""
        from dualar.audio.wav import check_wav_path
        from dualar.narration.subtitles import check_subtitle_path

        if self.is_stdout:
            streaming.check_stdout()
        elif self.is_file:
            check_wav_path(self.path)
            common.check_output(self.path, force=force)
        if self.codes is not None:
            common.check_codes_output(self.codes, force=force)
        if self.subtitles is not None:
            check_subtitle_path(self.subtitles)
            common.check_output(self.subtitles, force=force)
