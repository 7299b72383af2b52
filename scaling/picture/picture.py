"""A picture: a sheet of panels that a notebook shows and that is drawn to files."""

from __future__ import annotations

from pathlib import Path

from scaling.errors import ScalingError
from scaling.picture.elements import Sheet

PRINTED = (".pdf", ".svg", ".png")


class Picture(Sheet):
    """A sheet that draws itself."""

    def __repr__(self) -> str:
        return f"Picture({self.title!r}, {len(self.panels)} panels)"

    def _repr_png_(self) -> bytes:
        """Notebooks show a picture as it will be printed."""
        from scaling.picture.static import png

        return png(self)


def save(picture: Sheet, *paths: str | Path) -> list[Path]:
    """Draw to files; the suffix chooses the format. Printed formats share one layout."""
    files = [Path(path) for path in paths]
    for file in files:
        if file.suffix not in (*PRINTED, ".html"):
            fix = "choose .pdf, .svg, .png or .html"
            raise ScalingError("is no kind of picture", key="suffix", value=file.suffix, file=file, fix=fix)
        file.parent.mkdir(parents=True, exist_ok=True)
    printed = [file for file in files if file.suffix in PRINTED]
    if printed:
        from scaling.picture import static

        static.save(picture, printed)
    for file in files:
        if file not in printed:
            from scaling.picture import interactive

            interactive.save(picture, file)
    return files
