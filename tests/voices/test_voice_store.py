"""The store of voices: which names may be, links out of it, damage, and several processes that add at once."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import dualar
import numpy as np
import pytest
from dualar.files import remove_unfinished
from dualar.voices.find import find_voice
from dualar.voices.name import check_voice_name
from dualar.voices.store import VoiceStore, store_folder
from dualar.voices.voice import Voice
from hypothesis import given
from hypothesis import strategies as st


def made(code: int = 1, **changes: Any) -> Voice:
    fields = {"codes": np.full((2, 3), code), "transcript": "hello", "sample_rate": 8000, "codebook_size": 1000}
    return Voice(**{**fields, **changes})


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> VoiceStore:
    monkeypatch.setenv("DUALAR_VOICES", str(tmp_path / "deep" / "voices"))
    return VoiceStore()


# ------------------------------------------------------------------ where
def test_the_folder(tmp_path: Path) -> None:
    home = tmp_path
    local = home / ".local" / "share" / "dualar" / "voices"
    assert store_folder({}, platform="linux", home=home) == local
    assert store_folder({"DUALAR_VOICES": "", "XDG_DATA_HOME": "relative"}, platform="linux", home=home) == local
    assert store_folder({"XDG_DATA_HOME": "/data"}, platform="linux", home=home) == Path("/data/dualar/voices")
    assert store_folder({"DUALAR_VOICES": "here", "XDG_DATA_HOME": "/data"}, platform="linux") == Path("here")
    mac = home / "Library" / "Application Support" / "dualar" / "voices"
    assert store_folder({"XDG_DATA_HOME": "/data"}, platform="darwin", home=home) == mac
    assert store_folder({"LOCALAPPDATA": "/local"}, platform="win32", home=home) == Path("/local/dualar/voices")


# ------------------------------------------------------------------ names
@pytest.mark.parametrize("name", ["anna", "Anna 2", "小红", "a.b-c_d", "x" * 64, "نور", "हिन्दी", "CONrad", "communal"])
def test_names_that_may_be(store: VoiceStore, name: str) -> None:
    path = store.add(name, made())
    assert path.parent == store.folder and path.name == f"{name}.voice"
    assert store.names() == [name] and store.get(name).name == name


BAD_NAMES = [
    "", ".", "..", "../x", "a/b", "a\\b", "/etc/passwd", "C:", "C:x", "a\0b", ".hidden", "-f", "a..b", "a.", "a ",
    " a", "a\n", "a\u200bb", "x" * 65, "漢" * 64 + "字", "漢" * 67, "a\ud800", "con", "NUL", "Aux.txt", "com1",
    "lpt9.voice", "COM¹", "a*", "a?", 'a"', "a|b", "a<b", "~", "\u0301a", "%2e%2e",
]  # fmt: skip


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_that_may_not_be_are_refused_by_every_verb(store: VoiceStore, name: str) -> None:
    store.add("anna", made())
    outside = store.folder.parent / "x.voice"
    made().save(outside)
    for verb in (lambda: store.add(name, made()), lambda: store.get(name), lambda: store.remove(name),
                 lambda: store.find(name), lambda: store.add(name, made(), force=True)):  # fmt: skip
        with pytest.raises(ValueError, match=r"^\[voice\] expected a name of 1 to 64 "):
            verb()
    assert os.listdir(store.folder) == ["anna.voice"] and outside.exists()


@given(st.text(max_size=70))
def test_a_name_that_passes_is_one_component_of_a_path(name: str) -> None:
    try:
        checked = check_voice_name(name)
    except ValueError:
        return
    assert Path("/store", checked + ".voice").parent == Path("/store")
    assert os.path.normpath(os.path.join("/store", checked)) == f"/store/{checked}"
    assert check_voice_name(checked) == checked and "\0" not in checked and not checked.startswith((".", "-"))


def test_composed_and_decomposed_are_one_name(store: VoiceStore) -> None:
    store.add("Zoe\u0308", made())
    assert store.names() == ["Zo\u00eb"] and store.get("Zo\u00eb").name == store.get("Zoe\u0308").name
    with pytest.raises(ValueError, match="a new name"):
        store.add("Zo\u00eb", made())


def test_names_that_differ_in_case_alone_are_refused(store: VoiceStore) -> None:
    store.add("Anna", made())
    for force in (False, True):
        with pytest.raises(ValueError, match="'anna' beside 'Anna'"):
            store.add("anna", made(), force=force)
    with pytest.raises(ValueError, match="did you mean 'Anna'"):
        store.get("anna")


# ------------------------------------------------------------------ verbs
def test_add_get_replace_remove(store: VoiceStore) -> None:
    assert store.names() == []
    assert not store.folder.exists(), "looking makes no folder"
    store.add("b", made(1))
    store.add("a", made(2, name="other"))
    assert store.names() == ["a", "b"] and store.get("a").name == "a"
    with pytest.raises(ValueError, match="a new name, got 'b'"):
        store.add("b", made(3))
    assert store.get("b").codes[0, 0] == 1
    store.add("b", made(3), force=True)
    assert store.get("b").codes[0, 0] == 3
    store.remove("b")
    assert store.names() == ["a"] and sorted(os.listdir(store.folder)) == ["a.voice"]


def test_an_unknown_voice_is_an_error_and_names_near_ones(store: VoiceStore) -> None:
    with pytest.raises(ValueError, match="which is empty"):
        store.get("anna")
    for name in ("anna", "annika", "bertram"):
        store.add(name, made())
    for verb in (store.get, store.remove, store.find, find_voice):
        with pytest.raises(ValueError, match=r"got 'ana': not in .*did you mean 'anna'"):
            verb("ana")
        with pytest.raises(ValueError, match="it has 3"):
            verb("zzz")
    assert len(store.names()) == 3


def test_a_name_is_never_a_path_nor_a_path_a_name(
    store: VoiceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made(7).save("anna", format="voice")
    with pytest.raises(ValueError, match=r"say \./anna"):
        find_voice("anna")
    store.add("anna", made(8))
    assert find_voice("anna").codes[0, 0] == 8
    assert find_voice("./anna").codes[0, 0] == 7
    assert find_voice(Path("anna")).codes[0, 0] == 7
    for path in ("anna.voice", "anna.s2voice", "deep/voices/bert.voice"):
        with pytest.raises(FileNotFoundError):
            find_voice(path)
    with pytest.raises(TypeError, match="got int"):
        find_voice(5)  # type: ignore[arg-type]
    voice = made()
    assert find_voice(voice) is voice


# ------------------------------------------------------------------ what else may lie in the folder
def test_links_are_refused(store: VoiceStore, tmp_path: Path) -> None:
    secret = tmp_path / "secret.voice"
    made(5).save(secret)
    before = secret.read_bytes()
    store.folder.mkdir(parents=True)
    (store.folder / "evil.voice").symlink_to(secret)
    (store.folder / "gone.voice").symlink_to(tmp_path / "nothing")
    for name in ("evil", "gone"):
        with pytest.raises(ValueError, match="got a symbolic link"):
            store.get(name)
        for force in (False, True):
            with pytest.raises(ValueError, match="got a link"):
                store.add(name, made(6), force=force)
        store.remove(name)
    assert secret.read_bytes() == before and os.listdir(store.folder) == []
    assert not (tmp_path / "nothing").exists()


def test_a_link_that_comes_between_the_look_and_the_opening_is_not_followed(
    store: VoiceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made().save(tmp_path / "secret.voice")
    store.folder.mkdir(parents=True)
    (store.folder / "a.voice").symlink_to(tmp_path / "secret.voice")
    real = os.stat
    monkeypatch.setattr(os, "stat", lambda path, **options: real(path, **{**options, "follow_symlinks": True}))
    with pytest.raises(OSError, match="symbolic links"):
        store.get("a")


def test_a_damaged_voice_is_an_error_and_can_be_replaced_or_removed(store: VoiceStore) -> None:
    path = store.add("anna", made())
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"cut short or damaged"):
        store.get("anna")
    assert store.names() == ["anna"]
    store.add("anna", made(9), force=True)
    assert store.get("anna").codes[0, 0] == 9
    path.write_bytes(b"")
    store.remove("anna")
    assert store.names() == []


def test_other_files_are_no_voices(store: VoiceStore) -> None:
    store.add("anna", made())
    for name in ("notes.txt", ".0123.tmp", ".x.voice", "-f.voice", "con.voice", "b.voice.bak"):
        (store.folder / name).write_bytes(b"x")
    (store.folder / "sub.voice").mkdir()
    assert store.names() == ["anna", "sub"]
    with pytest.raises(ValueError, match="got a folder"):
        store.get("sub")
    with pytest.raises(ValueError, match="a link or a folder"):
        store.add("sub", made(), force=True)


def test_a_folder_that_is_none_is_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for verb in ("names", "add"):
        store = VoiceStore(tmp_path / "file")
        with pytest.raises(OSError, match="file"):
            store.names() if verb == "names" else store.add("a", made())


# ------------------------------------------------------------------ at once, and on failures
class EndedError(BaseException):
    """In a test, the end of the process."""


ADD = """
import sys, time
import numpy as np
from dualar.voices.store import VoiceStore
from dualar.voices.voice import Voice
code, start = int(sys.argv[1]), float(sys.argv[2])
voice = Voice(codes=np.full((4, 2000), code), transcript="hello", sample_rate=8000, codebook_size=1000)
store, won = VoiceStore(), []
for i in range(20):
    while time.time() < start + i * 0.01:
        pass
    try:
        store.add(f"v{i}", voice)
        won.append(i)
    except ValueError as error:
        assert "a new name" in str(error), error
    store.add("shared", voice, force=True)
    assert len(set(store.get("shared").codes.flat)) == 1
print(*won)
"""


def test_processes_that_add_at_once_have_one_winner_each_time(store: VoiceStore) -> None:
    import time

    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    start = str(time.time() + 1.5)
    workers = [
        subprocess.Popen([sys.executable, "-c", ADD, str(code), start], env=env, stdout=subprocess.PIPE, text=True)
        for code in (1, 2)
    ]
    won = [[int(i) for i in worker.communicate(timeout=60)[0].split()] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0]
    assert sorted(won[0] + won[1]) == list(range(20))
    for code, indices in zip((1, 2), won, strict=True):
        for i in indices:
            assert set(store.get(f"v{i}").codes.flat) == {code}
    assert not [name for name in os.listdir(store.folder) if name.endswith(".tmp")]


def test_a_file_system_without_links(store: VoiceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    store.add("anna", made(4))
    assert store.get("anna").codes[0, 0] == 4
    with pytest.raises(ValueError, match="a new name"):
        store.add("anna", made(5))
    assert store.get("anna").codes[0, 0] == 4 and os.listdir(store.folder) == ["anna.voice"]


def test_a_write_that_fails_leaves_nothing(store: VoiceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.add("anna", made(1))

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for name in ("anna", "bert"):
        with pytest.raises(OSError, match="No space"):
            store.add(name, made(2), force=True)
    assert os.listdir(store.folder) == ["anna.voice"] and store.get("anna").codes[0, 0] == 1


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("moment", ["fsync", "link", "replace", "unlink"])
def test_a_process_that_ends_at_once_leaves_a_whole_voice_or_none(
    store: VoiceStore, monkeypatch: pytest.MonkeyPatch, moment: str, links: bool
) -> None:
    """As a second Ctrl-C does: whatever is under way, what is registered as unfinished goes."""
    before = getattr(os, moment)

    def end(*_: object) -> None:
        monkeypatch.setattr(os, moment, before)
        remove_unfinished()
        raise EndedError

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(os, moment, end)
    with contextlib.suppress(EndedError):
        store.add("anna", made(4))
    if os.path.exists(store.folder / "anna.voice"):
        assert store.get("anna").codes[0, 0] == 4
    assert set(os.listdir(store.folder)) <= {"anna.voice"}


def test_the_public_names() -> None:
    assert dualar.Voice is Voice and dualar.VoiceStore is VoiceStore
