"""`dualar say`: text to the system's audio, a WAV file or a player.

Owns the command: which text, with which request, to which output. Leaves the options to `say_options.py`, the reading
of the text to `text_input.py`, the output to `output.py`, the speaking to `speaking.py` and, for long texts,
`narrating.py`.
"""

from __future__ import annotations

import typer

from dualar.cli import common, narrating, phonemes_shown, speaking, text_input
from dualar.cli import say_options as options
from dualar.cli.loading_shown import shown_loading
from dualar.cli.output import Levels, Output
from dualar.config import SamplingConfig

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def say(
    model: common.ModelOption,
    output: options.OutputOption = None,
    text: options.TextArgument = None,
    file: options.FileOption = None,
    voice: options.VoiceOption = None,
    language: options.LanguageOption = None,
    speaker: options.SpeakerOption = None,
    instruct: options.InstructOption = None,
    codes: options.CodesOption = None,
    subtitles: options.SubtitlesOption = None,
    seed: options.SeedOption = None,
    sampler: options.SamplerOption = None,
    temperature: options.TemperatureOption = None,
    top_p: options.TopPOption = None,
    top_k: options.TopKOption = None,
    repetition_penalty: options.RepetitionPenaltyOption = None,
    max_new_tokens: options.MaxNewTokensOption = None,
    min_tokens_before_end: options.MinTokensBeforeEndOption = None,
    pause: options.PauseOption = None,
    context: options.ContextOption = 768,
    retries: options.RetriesOption = 1,
    rows: options.RowsOption = 1,
    continue_from: options.ContinueOption = None,
    stream: options.StreamOption = False,
    frames_per_chunk: options.FramesPerChunkOption = None,
    stdout_format: options.StdoutFormatOption = None,
    subtype: common.SubtypeOption = "PCM_16",
    trim_silence: options.TrimSilenceOption = False,
    peak: options.PeakOption = None,
    loudness: options.LoudnessOption = None,
    device: common.DeviceOption = "cpu",
    threads: common.ThreadsOption = None,
    fast_ar: options.FastArOption = "cached",
    kv_type: options.KvTypeOption = "auto",
    tokenizer: options.TokenizerOption = None,
    lexicon: phonemes_shown.LexiconOption = None,
    phonemes: phonemes_shown.PhonemesOption = False,
    im_end_id: options.ImEndIdOption = None,
    keep_partial: options.KeepPartialOption = False,
    force: common.ForceOption = False,
    quiet: common.QuietOption = False,
    verbose: common.VerboseOption = 0,
) -> None:
    """Say a text: play it as it is made, or with -o write it to a WAV file or into a player."""
    with common.reporting(quiet=quiet, verbose=verbose):
        words = text_input.read_text(text, file)
        if phonemes:
            phonemes_shown.show(words, model, lexicon)
            return
        given = {"temperature": temperature, "top_p": top_p, "top_k": top_k, "repetition_penalty": repetition_penalty}
        chosen = {name: value for name, value in given.items() if value is not None}
        sampling = None if sampler is None else SamplingConfig.from_options(sampler, **chosen)
        target = Output.of(
            output, codes=codes, subtitles=subtitles, subtype=subtype, stream=stream, frames_per_chunk=frames_per_chunk,
            stdout_format=stdout_format, levels=Levels(trim_silence=trim_silence, peak=peak, loudness=loudness),
        )  # fmt: skip
        target.check(force=force)
        from dualar.engine import Engine
        from dualar.families.registry import family_of
        from dualar.narration.config import NarrationConfig
        from dualar.narration.plan import plan
        from dualar.runtime import open_file
        from dualar.speech.request import SpeechRequest

        opened = open_file(model)
        pauses = narrating.read_pauses(pause)
        config = NarrationConfig(pause_ms=pauses, context_tokens=context, retries=retries, rows=rows)
        pieces = plan(words, config, longest_text=family_of(opened).longest_text)
        is_long = pieces.is_long or continue_from is not None
        job = narrating.job_for(target, continue_from, force=force) if is_long else None
        reference = None if voice is None else common.find_voice(voice)  # an unknown one is refused before loading
        with shown_loading(model, quiet=quiet):
            engine = Engine(
                opened, device=device, threads=threads, fast_ar=fast_ar, kv_type=kv_type, tokenizer=tokenizer,
                im_end_id=im_end_id, lexicon=lexicon,
            )  # fmt: skip
        with engine:
            if not quiet:
                phonemes_shown.tell_of_guesses(engine.parts.family.frontend, words)
            request = SpeechRequest(
                text=words, voice=reference, language=language, speaker=speaker, instruct=instruct, seed=seed,
                sampling=engine.sampling.with_options(**chosen) if sampling is None else sampling,
                max_new_tokens=max_new_tokens, min_tokens_before_end=min_tokens_before_end,
                word_times=subtitles is not None and engine.parts.family.times_words(engine.parts.tokenizer),
            )  # fmt: skip
            if is_long:
                files = narrating.Files(output=target, job=job, continued=continue_from is not None)
                narrating.narrate(engine, request, pieces, files, quiet=quiet, keep_partial=keep_partial)
            else:
                speaking.speak(engine, request, target, quiet=quiet, keep_partial=keep_partial)
