"""The page in headless Chromium, from disk and with the network off, driven by the DevTools protocol over a pipe."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from scaling.reports.write import write
from tests.reports.conftest import make_study

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: apt install chromium"),
]


class Browser:
    """One tab. Messages are JSON that ends in a zero byte: the browser reads them from 3 and writes them to 4."""

    def __init__(self, folder: Path):
        read_ours, write_theirs = os.pipe()
        read_theirs, write_ours = os.pipe()
        words = [
            *("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run"),
            *("--disable-background-networking", f"--user-data-dir={folder}", "about:blank"),
        ]
        line = f'exec "$0" "$@" 3<&{read_theirs} 4>&{write_theirs}'
        self.process = subprocess.Popen(
            ["bash", "-c", line, str(CHROMIUM), *words],
            pass_fds=(read_theirs, write_theirs),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_theirs)
        os.close(write_theirs)
        self._out, self._in = write_ours, os.fdopen(read_ours, "rb", buffering=0)
        self._rest, self._count, self._session = b"", 0, None
        self.events: list[dict] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        self.ask("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)

    def ask(self, method: str, **parameters) -> dict:
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._out, json.dumps(message).encode() + b"\0")
        return self._until(lambda told: told.get("id") == self._count)["result"]

    def _until(self, wanted) -> dict:
        while True:
            whole, zero, rest = self._rest.partition(b"\0")
            if not zero:
                piece = self._in.read(1 << 20)
                assert piece, "the browser has gone"
                self._rest += piece
                continue
            self._rest, output = rest, json.loads(whole)
            self.events += [output] if "method" in output else []
            if wanted(output):
                assert "error" not in output, output["error"]
                return output

    def open(self, path: Path) -> None:
        self.events.clear()
        self.ask("Page.navigate", url=path.as_uri())
        if not any(told["method"] == "Page.loadEventFired" for told in self.events):
            self._until(lambda told: told.get("method") == "Page.loadEventFired")

    def value(self, expression: str):
        output = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in output, output
        return output["result"].get("value")

    def complaints(self) -> list[dict]:
        """Errors of scripts, of the policy, and of loading."""
        spoken = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded", "Network.loadingFailed")
        return [output for output in self.events if output["method"] in spoken]

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(60)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    opened = Browser(tmp_path_factory.mktemp("chromium"))
    yield opened
    opened.close()


@pytest.fixture
def opened(browser, study):
    browser.open(study.page)
    return browser


def test_it_opens_without_a_complaint_and_its_plots_are_drawn(opened, study):
    assert opened.complaints() == []
    asked = [one["params"]["request"]["url"] for one in opened.events if one["method"] == "Network.requestWillBeSent"]
    assert asked == [study.page.as_uri()]
    widths = "[...document.querySelectorAll('{}')].map(p => p.getBoundingClientRect().width)"
    boxes, marks = (opened.value(widths.format(what)) for what in (".plot svg", ".plot a"))
    assert len(boxes) == len(study.findings.pictures)
    assert min(boxes) > 200
    assert len(marks) > 10
    assert min(marks) > 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_what_is_behind_it(opened, scheme):
    opened.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    ratios = opened.value(CONTRAST)
    opened.ask("Emulation.setEmulatedMedia", features=[])
    assert len(ratios) > 50
    assert min(ratios)[0] >= 4.5, min(ratios)


@pytest.mark.parametrize("width", [360, 400, 1000, 1600])
def test_a_page_scrolls_in_one_direction_only_and_tables_take_the_width_they_need(opened, width):
    opened.ask("Emulation.setDeviceMetricsOverride", width=width, height=740, deviceScaleFactor=1, mobile=width < 500)
    wide, inner = opened.value("[document.documentElement.scrollWidth, innerWidth]")
    sizes = opened.value("[...document.querySelectorAll('.plot text')].map(t => t.getBoundingClientRect().height)")
    cut = opened.value(
        "[...document.querySelectorAll('.scroll')].filter(t => t.scrollWidth > t.clientWidth + 1).length"
    )
    opened.ask("Emulation.clearDeviceMetricsOverride")
    assert wide <= inner
    assert min(sizes) >= 8
    assert width < 1000 or cut == 0


def test_a_hostile_study_does_nothing_and_the_policy_holds(browser, tmp_path):
    evil = "<img src=x onerror=alert(1)><script>alert(1)</script>"
    changes = {"question: Does a whole study": f"question: '{evil} Does a whole study", "in seconds?": "in seconds?'"}
    ledger, found = make_study(tmp_path, changes, outcome=lambda place: "finished" if place < 2 else None)
    browser.open(page := write(ledger, found)[1])
    assert browser.complaints() == []
    assert not any(one["method"] == "Page.javascriptDialogOpening" for one in browser.events)
    assert browser.value("document.querySelector('h1').textContent").startswith(evil)
    text = page.read_text(encoding="utf-8")
    (tmp_path / "broken.html").write_text(text.replace("<main", "<script>window.broken = 1</script><main"))
    browser.open(tmp_path / "broken.html")
    assert browser.value("window.broken") is None
    assert "Content Security Policy" in json.dumps(browser.complaints())


# WCAG 2's contrast of every visible text of the page with the nearest background that is painted.
CONTRAST = """(() => {
  const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(c => c / 255)
    .map(c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const p = parts(getComputedStyle(e).backgroundColor);
      if (p.length < 4 || p[3] > 0) return p;
    }
    return [255, 255, 255];
  };
  const told = [];
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.getClientRects().length || ["SCRIPT", "STYLE"].includes(e.tagName)) continue;
    const style = getComputedStyle(e);
    const ink = light(parts(e.closest(".plot") ? style.fill : style.color));
    const paper = light(behind(e));
    const ratio = (Math.max(ink, paper) + .05) / (Math.min(ink, paper) + .05);
    told.push([ratio, e.tagName + " " + e.textContent.slice(0, 40)]);
  }
  return told;
})()"""
