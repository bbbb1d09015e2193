"""HTML out of Python calls, escaped unless said otherwise.

Every child and every attribute value is escaped; only an Html, which nothing but this file makes, goes in as it is. So
a text from a run folder cannot become markup by being forgotten.
"""

from __future__ import annotations

import json
from html import escape

# SVG shapes close themselves; HTML's void elements must not be closed. "/>" is legal for both.
VOID = frozenset({"meta", "input", "br", "path", "rect", "line", "circle", "stop"})


class Html(str):
    """Text that already is HTML."""

    __slots__ = ()


Child = str | int | None
Attribute = str | int | float | bool | None


def fragment(*children: Child) -> Html:
    """Children one after another; None is omitted."""
    return Html("".join(_child(child) for child in children if child is not None))


def tag(name: str, /, *children: Child, **attributes: Attribute) -> Html:
    """One element. class_ is class, aria_label is aria-label; None and False omit an attribute."""
    opening = name + "".join(_attribute(key, value) for key, value in attributes.items())
    return Html(f"<{opening}/>" if name in VOID else f"<{opening}>{fragment(*children)}</{name}>")


def tag_if(name: str, content: Child, /, **attributes: Attribute) -> Html | None:
    """One element, or None where there is nothing to put into it."""
    return tag(name, content, **attributes) if content else None


def data_block(value: object, class_: str) -> Html:
    """JSON for the page's script. "<" is written as an escape, so no text can end the block early."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Html(f'<script type="application/json" class="{escape(class_)}">{text}</script>')


def figure(title: str, subtitle: str, *content: Child, class_: str = "chart") -> Html:
    return tag("figure", tag("figcaption", tag("h4", title), tag("p", subtitle)), *content, class_=class_)


def no_figure(title: str, subtitle: str, reason: str | None = None, class_: str = "chart") -> Html:
    """A figure that says why there is no chart."""
    reason = reason or "Nothing was recorded for this chart."
    return figure(title, subtitle, tag("p", reason, class_="empty"), class_=class_)


def key_list(*entries: tuple[str, str]) -> Html:
    """What colours mean: the class of a swatch, and the words for it."""
    swatches = [(tag("span", class_=f"swatch {class_}", aria_hidden="true"), words) for class_, words in entries]
    return tag("ul", *(tag("li", swatch, tag("span", words)) for swatch, words in swatches), class_="key-list")


def scroll_table(
    name: str, head: Html, body: Html, foot: Html | None = None, *, frame: str = "scroll", **attributes: Attribute
) -> Html:
    """A table with a hidden caption that scrolls by itself when it is wider than the page."""
    table = tag("table", tag("caption", name, class_="hidden"), head, body, foot, **attributes)
    return tag("div", table, class_=frame, tabindex=0, role="region", aria_label=name)


def _child(child: Child) -> str:
    return child if isinstance(child, Html) else escape(str(child))


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'
