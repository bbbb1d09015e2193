"""The site names everything that is public, and its navigation leads to every page."""

import re
from pathlib import Path

import wirebound as wb

ROOT = Path(__file__).resolve().parent.parent.parent
MODULES = {"distributed": "::: wirebound.distributed", "schedule": "::: wirebound.schedule"}


def test_every_public_name_is_in_the_reference():
    reference = "\n".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "api").glob("*.md"))
    named = {line.rsplit(".", 1)[-1] for line in re.findall(r"^::: (\S+)$", reference, re.MULTILINE)}
    missing = [
        name
        for name in wb.__all__
        if not name.startswith("__") and name not in named and MODULES.get(name, "no module") not in reference
    ]
    assert not missing, f"add to docs/api: {', '.join(missing)}"


def test_the_navigation_leads_to_every_page():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    linked = set(re.findall(r"(\S+\.md)$", text[text.index("nav:") :], re.MULTILINE))
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert pages == linked
