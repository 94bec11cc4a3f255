"""The page in a real browser: typed, played, stopped, downloaded, in error, with a voice uploaded."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dualar.audio.wav import write_wav
from server_process import HTTP, WAIT, ServerProcess, server

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
needs_browser = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="needs chromium and chromium-driver, which are not installed"
)
PAGE = resources.files("dualar.server") / "page"


def test_a_browser_is_there_where_it_must_be() -> None:
    if os.environ.get("DUALAR_TEST_BROWSER") == "required":
        assert CHROMIUM is not None and DRIVER is not None


@pytest.fixture(scope="module")
def running() -> Iterator[ServerProcess]:
    with server("--rows", "2") as run:
        yield run


@pytest.fixture(scope="module")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="module")
def browser(downloads: Path) -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for argument in (
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--mute-audio",
        "--autoplay-policy=no-user-gesture-required", "--window-size=1000,1400", "--disable-background-networking",
    ):  # fmt: skip
        options.add_argument(argument)
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    driver.set_page_load_timeout(WAIT)
    yield driver
    driver.quit()


@pytest.fixture
def page(browser: Any, running: ServerProcess) -> Any:
    opened(browser, running)
    return browser


def opened(browser: Any, run: ServerProcess) -> None:
    browser.get(run.url)
    wait(lambda: browser.execute_script("return document.body.dataset.ready === 'true'"))


def wait(condition: Callable[[], object]) -> None:
    end = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.05)


def field(page: Any, name: str) -> Any:
    return page.find_element("id", name)


def typed(page: Any, text: str) -> None:
    field(page, "text").clear()
    field(page, "text").send_keys(text)


def no_errors(page: Any) -> None:
    assert [entry for entry in page.get_log("browser") if entry["level"] == "SEVERE"] == []


@needs_browser
def test_text_is_spoken_and_drawn(page: Any) -> None:
    typed(page, "turn off the light at seven thirty")
    field(page, "seed").send_keys("7")
    field(page, "speak").click()
    wait(lambda: field(page, "state").text == "Spoken.")
    assert field(page, "first").text.endswith("ms") and float(field(page, "factor").text) > 0
    assert field(page, "used-seed").text == "7" and field(page, "length").text.endswith(" s")
    assert page.execute_script("return window.dualar.wave.bars") > 20
    assert len(page.find_elements("css selector", "#history li")) == 1
    assert not field(page, "error").is_displayed()
    no_errors(page)


@needs_browser
def test_keys_speak_and_stop_a_long_text(page: Any, running: ServerProcess) -> None:
    from selenium.webdriver.common.keys import Keys

    typed(page, "Turn off the light. " * 30)
    field(page, "text").send_keys(Keys.CONTROL, Keys.ENTER)
    wait(lambda: field(page, "state").text.startswith("Sentence "))
    assert field(page, "progress").is_displayed()
    field(page, "text").send_keys(Keys.ESCAPE)
    wait(lambda: field(page, "state").text == "Stopped.")
    running.wait_idle()
    wait(lambda: not field(page, "stop").is_enabled())


@needs_browser
def test_what_was_said_is_downloaded_the_same(page: Any, downloads: Path, running: ServerProcess) -> None:
    typed(page, "it is seven thirty")
    field(page, "seed").send_keys("11")
    field(page, "speak").click()
    wait(lambda: field(page, "download").is_enabled())
    field(page, "format").send_keys("wav")
    field(page, "download").click()
    wait(lambda: (downloads / "speech-11.wav").exists())
    body = {"input": "it is seven thirty", "seed": 11, "response_format": "wav", "stream": False}
    wanted = HTTP.post(running.url + "/v1/audio/speech", json=body).content
    wait(lambda: (downloads / "speech-11.wav").read_bytes() == wanted)


@needs_browser
def test_errors_are_shown(page: Any) -> None:
    field(page, "text").clear()
    field(page, "speak").click()
    wait(lambda: field(page, "error").is_displayed())
    assert "text" in field(page, "error").text
    page.get_log("browser")  # the 400 is logged, and meant


@needs_browser
def test_guessed_words_are_marked_while_typing(page: Any) -> None:
    typed(page, "turn off the blorptastic lamp")
    wait(lambda: field(page, "guessed").text == "Guessed from their letters: blorptastic")
    marked = page.execute_script("return [...document.querySelectorAll('#marks mark')].map((m) => m.textContent)")
    assert marked == ["blorptastic"]


@needs_browser
def test_the_request_as_code(page: Any) -> None:
    typed(page, "it's seven")
    for kind, part in (("curl", "curl http"), ("python", "from openai import OpenAI"), ("javascript", "await fetch(")):
        page.find_element("css selector", f"[data-code={kind}]").click()
        assert part in field(page, "code").text and "seven" in field(page, "code").text


@needs_browser
def test_everything_has_a_name_and_fits_a_phone(page: Any) -> None:
    unnamed = page.execute_script("""
        return [...document.querySelectorAll("input, select, textarea, button, canvas, progress")].filter((one) =>
          !one.labels?.length && !one.getAttribute("aria-label") && !one.textContent.trim()).map((one) => one.id)""")
    assert unnamed == []
    page.set_window_size(360, 800)
    try:
        wide = page.execute_script("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0
    finally:
        page.set_window_size(1000, 1400)


@needs_browser
def test_a_voice_is_uploaded(browser: Any, toy_model: Path, tmp_path: Path) -> None:
    samples = (0.3 * np.sin(np.arange(8000) * 0.1)).astype(np.float32)
    write_wav(tmp_path / "voice.wav", samples, 16000)
    with server("-m", str(toy_model), "--voices", str(tmp_path / "voices")) as run:
        opened(browser, run)
        field(browser, "voice-name").send_keys("Anna")
        field(browser, "voice-file").send_keys(str(tmp_path / "voice.wav"))
        field(browser, "voice-text").send_keys("hello there")
        browser.find_element("css selector", "#voice-form button[type=submit]").click()
        wait(lambda: field(browser, "voice-state").text == "Anna was added.")
        assert browser.execute_script("return document.getElementById('voice').value") == "Anna"
        no_errors(browser)
    assert os.listdir(tmp_path / "voices") == ["Anna.voice"]


# ------------------------------------------------------------------ without a browser
def test_the_page_is_served_with_a_policy_and_only_its_files(running: ServerProcess) -> None:
    index = HTTP.get(running.url + "/")
    assert index.status_code == 200 and index.headers["content-type"].startswith("text/html")
    policy = index.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    source = Path(__file__).parents[2] / "python" / "dualar" / "server" / "page"
    assert {entry.name for entry in PAGE.iterdir()} == {entry.name for entry in source.iterdir()}  # a wheel has all
    for entry in PAGE.iterdir():
        answer = HTTP.get(running.url + "/page/" + entry.name)
        assert answer.content == entry.read_bytes()
        again = HTTP.get(running.url + "/page/" + entry.name, headers={"If-None-Match": answer.headers["etag"]})
        assert again.status_code == 304
    for name in ("nothing.js", "..%2fapp.py", "%2e%2e/app.py", "app.py"):
        assert HTTP.get(running.url + "/page/" + name).status_code == 404


def test_the_page_loads_nothing_from_elsewhere() -> None:
    for entry in PAGE.iterdir():
        text = entry.read_text(encoding="utf-8")
        assert "http://" not in text and "https://" not in text and "<style" not in text and "onclick" not in text
