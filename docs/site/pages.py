"""Hooks of MkDocs: pages of files outside `docs/`, notebooks as pages, and links as they are in the site.

Links in the Markdown of the repository are paths between its files. In the site, a link to a file or folder that
the site does not have becomes its text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from nbconvert import MarkdownExporter

ROOT = Path(__file__).parents[2]
OUTSIDE = ("CONTRIBUTING.md", "examples/README.md", "examples/published/README.md")
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]+)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of files outside `docs/`, and the kept reports beside the README of their folder."""
    for name in OUTSIDE:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    for path in (*ROOT.glob("notebooks/*.ipynb"), *ROOT.glob("examples/published/*.ipynb")):
        page = path.relative_to(ROOT).with_suffix(".md")
        text, resources = MarkdownExporter().from_filename(path, {"output_files_dir": page.stem})
        files.append(File.generated(config, str(page), content=text))
        for figure, content in resources["outputs"].items():
            files.append(File.generated(config, str(page.parent / figure), content=content))
    for path in (ROOT / "docs").rglob("index.html"):
        report = path.relative_to(ROOT / "docs").with_name("report.html")
        files.append(File.generated(config, str(report), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace each path of the repository in a link by the path in the site."""
    source = page.file.src_uri
    folder = posixpath.dirname(source if page.file.generated_by else f"docs/{source}")

    def replace(link: re.Match[str]) -> str:
        image, text, target, anchor = link.groups()
        origin = posixpath.normpath(posixpath.join(folder, target))
        path = re.sub(r"^README\.md$", "index.md", origin.removeprefix("docs/"))
        path = re.sub(r"\.ipynb$", ".md", re.sub(r"(^|/)index\.html$", r"\1report.html", path))
        if not (ROOT / origin).exists():
            return link[0]  # MkDocs reports it
        if files.get_file_from_path(path) is None:
            return text
        return f"{image}[{text}]({posixpath.relpath(path, posixpath.dirname(source) or '.')}{anchor or ''})"

    return LINK.sub(replace, markdown)
