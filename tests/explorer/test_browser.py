"""The page in a real browser: Chromium, driven by Playwright; skipped, in words, where there is none."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest
from sklearn.datasets import load_digits

from representer import EmbeddingClassifier, KernelAutoencoder, OperatorRidge
from representer.explorer import Explorer
from representer.explorer.server import application
from representer.kernels import Gaussian, Spectrum

playwright = pytest.importorskip("playwright.sync_api", reason="No browser tests: playwright is not installed.")
uvicorn = pytest.importorskip("uvicorn", reason="No browser tests: uvicorn is not installed.")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if CHROMIUM is None:
    pytest.skip("No browser tests: no Chromium on this machine (apt-get install chromium).", allow_module_level=True)

pytestmark = pytest.mark.slow  # a browser is a long way to what tests of the explorer and its server say
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
TOKEN = "a-token"
PATIENCE = 180_000.0  # milliseconds: what a browser does, it may do slowly


@contextmanager
def served(explorer):
    """The address of an explorer, while it is served."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{listener.getsockname()[1]}"
        server = uvicorn.Server(uvicorn.Config(application(explorer, TOKEN, (host,)), log_level="error", ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.02)
        try:
            yield f"http://{host}/{TOKEN}/"
        finally:
            server.should_exit = True
            thread.join(10)


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as own:
        chromium = own.chromium.launch(
            executable_path=CHROMIUM, timeout=PATIENCE, args=["--no-sandbox", "--disable-gpu"]
        )
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def digits():
    X = load_digits().data[:150] / 16.0
    return KernelAutoencoder(2, Gaussian(3.0), Gaussian(2.0), alpha=1e-3, encoder_alpha=1e-3).fit(X)


@contextmanager
def opened(browser, address, **options):
    """A page, which must have no error in its console and ask no other host."""
    context = browser.new_context(**{"viewport": {"width": 1100, "height": 760}, **options})
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    faults, asked = [], []
    page.on("console", lambda line: faults.append(line.text) if line.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address)
    page.wait_for_selector("body[data-ready]")
    page.evaluate("() => new Promise(requestAnimationFrame)")  # the map is drawn: it knows where its samples are
    yield page
    assert faults == []
    own = address.partition(TOKEN)[0] if address.startswith("http") else "file:"
    assert [url for url in asked if not url.startswith((own, "data:", "blob:"))] == []
    context.close()


def point(page, i):
    """Where a sample is on the screen."""
    box = page.locator("#map").bounding_box()
    x, y = page.evaluate(
        """async ([i, width, height]) => {
            const own = document.getElementById("data");
            const codes = own ? JSON.parse(own.textContent).overview.map.codes
                : (await (await fetch("ask/overview", {method: "POST", body: "{}"})).json()).map.codes;
            return [0, 1].map((a) => {
                const column = codes.map((code) => code[a]), low = Math.min(...column), high = Math.max(...column);
                const gap = (high - low) * 0.03, unit = (codes[i][a] - low + gap) / (high - low + 2 * gap);
                return a ? height / 2 - (unit - 0.5) * (height - 52) : width / 2 + (unit - 0.5) * (width - 52);
            });
        }""",
        [i, box["width"], box["height"]],
    )
    return box["x"] + x, box["y"] + y


def picture(page):
    """What is decoded, as an address of its pixels."""
    return page.evaluate("document.querySelector('#decoded canvas').toDataURL()")


def test_a_map_is_walked_through(browser, digits):
    with served(Explorer(digits)) as address, opened(browser, address) as page:
        page.mouse.move(*point(page, 5))  # hover: the picture
        page.wait_for_selector("#tip canvas")
        assert "support" in page.inner_text("#tip")
        box = page.locator("#map").bounding_box()
        page.mouse.click(box["x"] + 12, box["y"] + 60)  # an empty corner: decoded
        page.wait_for_selector("#decoded canvas")
        before = picture(page)
        page.mouse.click(box["x"] + box["width"] - 12, box["y"] + 60)
        page.wait_for_function("old => document.querySelector('#decoded canvas').toDataURL() !== old", arg=before)
        page.click("#components button >> nth=1")
        page.wait_for_selector("#walk canvas >> nth=6")
        page.click("#pictures")
        page.click("#draw")
        page.wait_for_selector("#panel .strip canvas >> nth=23")
        page.mouse.click(*point(page, 5))  # a sample: its reasons
        page.wait_for_selector("#reasons .bars")


def test_sliders_and_a_lasso(browser):
    X, y = load_digits(return_X_y=True)
    model = EmbeddingClassifier(Gaussian(2.0)).fit(X[:120] / 16, y[:120])
    with served(Explorer(model)) as address, opened(browser, address, color_scheme="dark") as page:
        box = page.locator("#map").bounding_box()
        page.click("#lasso")
        corners = [(0.02, 0.02), (0.98, 0.02), (0.98, 0.98), (0.02, 0.98)]
        for k, (a, b) in enumerate(corners):
            page.mouse.move(box["x"] + a * box["width"], box["y"] + b * box["height"])
            if not k:
                page.mouse.down()
        page.mouse.up()
        page.wait_for_selector("#csv")
        assert "120 of 120" in page.inner_text("#panel")
        with page.expect_download() as download:
            page.click("#csv")
        rows = download.value.path().read_text(encoding="utf-8").splitlines()
        assert len(rows) == 121
        assert rows[0].startswith("sample,component 1")
        page.click("#tab-kernel")
        page.wait_for_selector(".slider input")
        before = page.inner_text("#error")
        page.locator(".slider input").first.fill("-5")
        page.wait_for_function("old => document.getElementById('error').innerText !== old", arg=before)
        changed = Explorer(model).tune(0, {page.get_attribute(".slider", "data-name"): 2.0**-5})
        assert page.inner_text("#error").startswith(f"{changed['error']:.4g}")


def test_hostile_texts_are_shown_and_not_run(browser, tmp_path):
    words = ["banana", "bananas", "ananas", "ferret", "ferrets", HOSTILE]
    model = OperatorRidge(Spectrum(2).normalized(), alpha=0.01).fit(words, np.arange(6.0))
    explorer = Explorer(model)
    path = explorer.save(tmp_path / "page.html")
    with served(explorer) as live:
        for address in (live, path.as_uri()):
            with opened(browser, address) as page:
                page.mouse.move(*point(page, 5))
                page.wait_for_selector("#tip .text")
                assert HOSTILE in page.inner_text("#tip")
                page.mouse.click(*point(page, 5))
                page.wait_for_selector("#reasons .bars")
                assert "owned" not in page.title()
        with opened(browser, live) as page:  # a letter is edited, and the prediction moves
            page.mouse.click(*point(page, 0))
            page.click("summary")
            page.fill("#panel input", "bandana")
            page.wait_for_function("() => document.getElementById('reasons').innerText.includes('was')")
            assert f"{model.predict(['bandana'])[0]:.3g}" in page.inner_text("#reasons")


def test_a_file_decodes_without_a_server(browser, digits, tmp_path):
    address = Explorer(digits).save(tmp_path / "page.html").as_uri()
    with opened(browser, address) as page:
        box = page.locator("#map").bounding_box()
        page.mouse.click(box["x"] + 12, box["y"] + 60)
        page.wait_for_selector("#decoded canvas")
        before = picture(page)
        page.mouse.click(box["x"] + box["width"] - 12, box["y"] + 60)
        page.wait_for_function("old => document.querySelector('#decoded canvas').toDataURL() !== old", arg=before)
        page.click("#wallpaper")
        page.click("#tab-kernel")
        page.wait_for_function("() => document.getElementById('dimension').innerText.includes('effective')")


def test_a_phone_needs_no_sideways_scroll_and_a_wrong_token_gets_nothing(browser, digits):
    phone = {"viewport": {"width": 360, "height": 740}, "device_scale_factor": 2, "has_touch": True}
    with served(Explorer(digits)) as address:
        with opened(browser, address, **phone) as page:
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            page.touchscreen.tap(*point(page, 3))
            page.wait_for_selector("#reasons .bars")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            page.click("#tab-kernel")
            page.wait_for_selector(".slider input")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page = browser.new_page()
        answer = page.goto(address.replace(TOKEN, "a-tokem"))
        assert answer.status == 403
        assert page.locator("canvas").count() == 0
        page.close()
