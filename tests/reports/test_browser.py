"""The page in headless Chromium, from disk and with no name resolved."""

import json
import re
import shutil
import subprocess
from html import escape, unescape
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: apt install chromium"),
]


def opened(page: Path, folder: Path, *flags: str) -> tuple[str, list[str]]:
    """The document that a page becomes, and what the console says of scripts, of the policy, and of loading."""
    words = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", f"--user-data-dir={folder}"]
    line = [str(CHROMIUM), *words, "--host-resolver-rules=MAP * ~NOTFOUND", *flags, "--dump-dom", page.as_uri()]
    done = subprocess.run(line, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def found(expression: str, page: Path, folder: Path, *flags: str, width: int = 1000) -> Any:
    """What a script finds in a page of this width, whose policy lets it run."""
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text(encoding="utf-8"))
    frame = f'<iframe srcdoc="{escape(text)}" style="border: 0; width: {width}px; height: 740px"></iframe>'
    script = f"onload = () => document.title = JSON.stringify(frames[0].eval({json.dumps(expression)}))"
    (folder / "frame.html").write_text(f"<title></title>{frame}<script>{script}</script>", encoding="utf-8")
    document, _ = opened(folder / "frame.html", folder, *flags)
    return json.loads(unescape(document.partition("<title>")[2].partition("</title>")[0]))


def test_it_opens_without_a_complaint_its_plots_are_drawn_and_its_text_stands_out(study, tmp_path):
    assert opened(study.page, tmp_path)[1] == []
    widths = "[...document.querySelectorAll('{}')].map(p => p.getBoundingClientRect().width)"
    boxes, marks = (found(widths.format(what), study.page, tmp_path) for what in (".plot svg", ".plot a"))
    assert len(boxes) == len(study.findings.pictures)
    assert min(boxes) > 200
    assert len(marks) > 10
    assert min(marks) > 1
    papers = set()
    for scheme in ("0", "1"):  # dark and light
        paper, ratios = found(CONTRAST, study.page, tmp_path, f"--blink-settings=preferredColorScheme={scheme}")
        papers.add(paper)
        assert len(ratios) > 50
        assert min(ratios)[0] >= 4.5, min(ratios)
    assert len(papers) == 2


def test_a_page_scrolls_in_one_direction_only_and_tables_take_the_width_they_need(study, tmp_path):
    sizes = "[...document.querySelectorAll('.plot text')].map(t => t.getBoundingClientRect().height)"
    cut = "[...document.querySelectorAll('.scroll')].filter(t => t.scrollWidth > t.clientWidth + 1).length"
    measures = f"[innerWidth, document.documentElement.scrollWidth, Math.min(...{sizes}), {cut}]"
    for width in (360, 400, 1000, 1600):
        inner, wide, smallest, tables = found(measures, study.page, tmp_path, width=width)
        assert inner == width
        assert wide <= inner
        assert smallest >= 8
        assert width < 1000 or tables == 0


# The paper's colour, and WCAG 2's contrast of every visible text of the page with the nearest painted background.
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
  const ratio = (e, style) => {
    const ink = light(parts(e.closest(".plot") ? style.fill : style.color)), paper = light(behind(e));
    return (Math.max(ink, paper) + .05) / (Math.min(ink, paper) + .05);
  };
  const texts = [...document.querySelectorAll("body *")].filter(e => e.getClientRects().length
    && !["SCRIPT", "STYLE"].includes(e.tagName)
    && [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()));
  const ratios = texts.map(e => [ratio(e, getComputedStyle(e)), e.tagName + " " + e.textContent.slice(0, 40)]);
  return [behind(document.body).join(), ratios];
})()"""
