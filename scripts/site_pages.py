"""Hook for `mkdocs build`: turn files outside docs/ that pages link to into pages, and rewrite the links.

Links are written for the repository. A broken link stays as it is, and the strict build reports it.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
OUTSIDE = "repository"
_LINK = re.compile(r"(?<=\]\()(?P<target>[^)\s#:]+)(?=[)#\s])")
_LIST_BELOW_TITLE = re.compile(r"^(\*\*.+\*\*)\n(?=- )", re.M)  # mkdocs needs an empty line before the list
_FENCED = re.compile(r"(^ *```.*?^ *```$)", re.M | re.S)


def uri_of(path: Path) -> str:
    """Map a file or folder of the project to its page, below repository/ if it is not in docs/."""
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    name = path.relative_to(ROOT).as_posix()
    return f"{OUTSIDE}/{name}" + ("/index.md" if path.is_dir() else "" if path.suffix == ".md" else ".md")


def origin_of(uri: str) -> Path:
    """Return the Markdown file or notebook of a page; for pages of code and folders it does not exist."""
    if not uri.startswith(f"{OUTSIDE}/"):
        return DOCS / uri
    return ROOT / (uri.removesuffix(".md") if uri.endswith(".ipynb.md") else uri).removeprefix(f"{OUTSIDE}/")


def replace_links(text: str, origin: Path, new: Callable[[Path], str]) -> str:
    """Replace every relative link of `origin` to a project file, outside code blocks, with `new(file)`."""

    def one(match: re.Match[str]) -> str:
        target = (origin.parent / match["target"]).resolve()
        return new(target) if target.exists() and target.is_relative_to(ROOT) else match["target"]

    parts = _FENCED.split(text)
    return "".join(part if number % 2 else _LINK.sub(one, part) for number, part in enumerate(parts))


def linked(origin: Path) -> list[Path]:
    """List the project files and folders that a Markdown file or a notebook links to."""
    targets: list[Path] = []

    def collect(target: Path) -> str:
        targets.append(target)
        return ""

    replace_links(page_of(origin), origin, collect)
    return targets


def outside_pages() -> dict[Path, str]:
    """Return everything outside docs/ that its pages link to, directly or not, with the Markdown of its page."""
    queue, pages = [*DOCS.rglob("*.md"), *(ROOT / "benchmarks" / "results").glob("*.md")], {}
    seen = set(queue)
    while queue:
        path = queue.pop()
        if not path.is_relative_to(DOCS):
            pages[path] = page_of(path)
        below = shown(path) if path.is_dir() else linked(path) if path.suffix in (".md", ".ipynb") else []
        queue += [new for new in dict.fromkeys(below) if new not in seen]
        seen.update(below)
    return pages


def shown(folder: Path) -> list[Path]:
    """List the files of a folder that a page can show as text."""
    return sorted(path for path in folder.iterdir() if path.suffix in (".py", ".yaml", ".ipynb"))


def page_of(path: Path) -> str:
    """Return Markdown unchanged, a notebook as text and code, code as one block, a folder as a list."""
    text = "" if path.is_dir() else path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    if path.suffix == ".ipynb":
        cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]
        return "\n\n".join(source if kind == "markdown" else f"```python\n{source}\n```" for kind, source in cells)
    title = f"---\nsearch: {{exclude: true}}\n---\n\n# {path.relative_to(ROOT).as_posix()}\n\n"
    if path.is_dir():
        return title + "\n".join(f"- [{file.name}]({file.name}.md)" for file in shown(path)) + "\n"
    language = {".py": "python", ".yaml": "yaml"}.get(path.suffix, "text")
    return f"{title}`````{language}\n{text}\n`````\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    from mkdocs.structure.files import File

    for path, text in outside_pages().items():
        files.append(File.generated(config, uri_of(path), content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    uri = page.file.src_uri
    origin, folder = origin_of(uri), posixpath.dirname(uri) or "."
    if not origin.is_file():
        return markdown
    markdown = _LIST_BELOW_TITLE.sub(r"\1\n\n", markdown)
    return replace_links(markdown, origin, lambda target: posixpath.relpath(uri_of(target), folder))
