"""Hooks of MkDocs: the navigation lists the pages that are there, and the changes are those of CHANGELOG.md."""

from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

Entry = str | dict[str, Any]


def on_config(config: Any) -> Any:
    """Drop entries without a file."""
    config.nav = present(config.nav, Path(config.docs_dir))
    return config


def present(entries: list[Entry], folder: Path) -> list[Entry]:
    """The entries whose file is in the folder, in their order."""
    kept: list[Entry] = []
    for entry in entries:
        [(title, target)] = entry.items() if isinstance(entry, dict) else [("", entry)]
        if isinstance(target, list):
            kept.append({title: present(target, folder)})
        elif (folder / target).is_file():
            kept.append(entry)
    return kept


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The changes, with links as they are from a page of the folder."""
    if page.file.src_uri != "changes.md":
        return markdown
    return (ROOT / "CHANGELOG.md").read_text().replace("](docs/", "](")
