"""Makes characters visible that would act on a terminal or deceive a reader; one function for every output.

Models, tools and logs can hold any text. An escape sequence moves the cursor or sets the clipboard, a
bidirectional control shows an address backwards, a line separator draws a line that nobody wrote, a tag or
zero-width character hides text. Each is written as its number: `\\x1b`, `\\u202e`. What this leaves is also
well-formed in XML.

Source: Unicode 16, categories Cc, Zl, Zp, and those of Cf that are invisible; UAX 9 for bidirectional
controls.
"""

from __future__ import annotations

_RANGES = (
    *((0x00, 0x08), (0x0B, 0x1F), (0x7F, 0x9F), (0xAD, 0xAD), (0x61C, 0x61C), (0x180E, 0x180E)),
    *((0x200B, 0x200B), (0x200E, 0x200F), (0x2028, 0x202E), (0x2060, 0x206F), (0xFEFF, 0xFEFF)),
    *((0xD800, 0xDFFF), (0xFFF9, 0xFFFB), (0xFFFE, 0xFFFF), (0xE0000, 0xE007F)),
)


def _write_number(number: int) -> str:
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


_VISIBLE = {number: _write_number(number) for first, last in _RANGES for number in range(first, last + 1)}
_VISIBLE_LINE = {**_VISIBLE, 9: "\\t", 10: "\\n"}


def make_visible(text: str) -> str:
    """The text with such characters written as their numbers; tabs and line ends stay."""
    if text.isascii() and text.isprintable():
        return text
    return text.replace("\r\n", "\n").translate(_VISIBLE)


def make_visible_line(text: str) -> str:
    """As `make_visible`, on one line: for names and ids."""
    return text.translate(_VISIBLE_LINE)
