"""Runs what the README and the pages in docs/ show: every block of Python and every command line, in their order.

Each page has a folder of its own, with the files it speaks of (`stand_ins.py`), in which its blocks run one after the
other: Python in one namespace, shell lines by bash with an error at the first that fails. A server that a page starts
runs until the page ends.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from docs.pages import PAGES, ROOT, blocks, commands
from docs.stand_ins import PREPARATIONS, StandIns

PORT = "8080"  # in the pages; a free one in the test


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> StandIns:
    return StandIns(tmp_path_factory.mktemp("stand-ins"))


class Reader:
    """Somebody who follows a page in a folder, block by block."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.servers: list[subprocess.Popen[bytes]] = []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = str(free.getsockname()[1])

    def python(self, code: str, *, page: Path, line: int) -> None:
        padded = "\n" * (line - 1) + code.replace(PORT, self.port)  # so that an error names the page's line
        exec(compile(padded, str(page), "exec"), self.names)

    def shell(self, code: str) -> None:
        for command in commands(code.replace(PORT, self.port)):
            if command.startswith("dualar serve"):
                self.serve(command)
                continue
            strict = ["bash", "-euo", "pipefail", "-c", command]
            done = subprocess.run(strict, cwd=self.folder, capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, f"{command}\n{done.stderr}"

    def serve(self, command: str) -> None:
        arguments = command.split()[1:]
        self.servers.append(subprocess.Popen([sys.executable, "-m", "dualar", *arguments], cwd=self.folder))
        end = time.monotonic() + 60
        with httpx.Client(trust_env=False) as client:
            while True:
                try:
                    if client.get(f"http://127.0.0.1:{self.port}/ready").status_code == 200:
                        return
                except httpx.TransportError:
                    pass
                assert self.servers[-1].poll() is None and time.monotonic() < end, "the server did not start"
                time.sleep(0.05)

    def close(self) -> None:
        for server in self.servers:
            server.terminate()
            assert server.wait(30) == 0


@pytest.fixture
def reader(tmp_path: Path, stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{stand_ins.programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("DUALAR_VOICES", str(tmp_path / "voices"))
    monkeypatch.delenv("DUALAR_MODEL", raising=False)
    reader = Reader(tmp_path)
    try:
        yield reader
    finally:
        reader.close()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_shows_runs(page: Path, reader: Reader, stand_ins: StandIns) -> None:
    text = page.read_text(encoding="utf-8")
    stand_ins.give(text, reader.folder)
    for block in blocks(text):
        if block.before is not None:
            PREPARATIONS[block.before](reader.folder)
        if block.language == "python":
            reader.python(block.code, page=page, line=block.line)
        else:
            reader.shell(block.code)


def test_blocks_that_no_test_runs_are_found() -> None:
    with pytest.raises(ValueError, match=r"line 2: expected a block of python or sh, got '```ruby'"):
        blocks("text\n```ruby\nputs 1\n```\n")
    with pytest.raises(ValueError, match=r"line 2: expected the block to end"):
        blocks("```sh\nls\n")
    (block,) = blocks("<!-- test: interrupted -->\n\n```sh\na \\\n  b\npip install c\n# a remark\nd\n```\n")
    assert block.before == "interrupted" and block.line == 4
    assert commands(block.code) == ["a b", "d"]


def test_a_block_that_fails_fails_the_test(reader: Reader) -> None:
    with pytest.raises(AssertionError, match=r"false \| cat"):
        reader.shell("false | cat\n")
    with pytest.raises(ZeroDivisionError):
        reader.python("1 / 0", page=PAGES[0], line=1)


def test_the_readme_is_short_and_names_every_page() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme.encode()) < 7000
    listed = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in PAGES[1:]:
        assert f"(docs/{page.name})" in readme and f" {page.name}\n" in listed, page.name
