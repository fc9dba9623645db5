"""The frame that all pictures of docs/pictures share: a size, words for those who do not see it, a style."""

from html import escape


def svg(size: tuple[int, int], title: str, about: str, style: str, shapes: str) -> str:
    """Return a whole SVG; `style` and `shapes` end with a line end."""
    width, height = size
    box = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" {box} role="img">
<title>{escape(title)}</title>
<desc>{escape(about)}</desc>
<style>
{style}</style>
{shapes}</svg>
"""
