"""HTML out of Python calls, escaped unless said otherwise.

Every child and every attribute value is escaped; only an Html, which nothing but this file makes, goes
in as it is. So a text from a run folder cannot become markup by being forgotten.
"""

from __future__ import annotations

import json
from html import escape

VOID = frozenset({"meta", "input", "br", "path", "rect", "line", "circle", "stop"})
# SVG shapes close themselves; HTML's void elements must not be closed. "/>" is legal for both.


class Html(str):
    """Text that already is HTML."""

    __slots__ = ()


Child = str | int | None
Attribute = str | int | float | bool | None


def fragment(*children: Child) -> Html:
    """Children one after another; None is left out."""
    return Html("".join(_child(child) for child in children if child is not None))


def tag(name: str, /, *children: Child, **attributes: Attribute) -> Html:
    """One element. class_ is class, aria_label is aria-label; None and False leave an attribute out."""
    opening = name + "".join(_attribute(key, value) for key, value in attributes.items())
    if name in VOID:
        return Html(f"<{opening}/>")
    return Html(f"<{opening}>{fragment(*children)}</{name}>")


def data_block(value: object, class_: str) -> Html:
    """JSON for the page's script. "<" is written as an escape, so no text can end the block early."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    text = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    text = text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return Html(f'<script type="application/json" class="{escape(class_)}">{text}</script>')


def _child(child: Child) -> str:
    return child if isinstance(child, Html) else escape(str(child))


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    return f' {name}="{escape(str(value))}"'
