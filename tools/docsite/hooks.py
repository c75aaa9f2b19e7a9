"""What MkDocs is told by the code: pages that follow from the registry, the commands and the docstrings.

Nothing is written to docs/: generated pages exist in the built site alone.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "src")]

from mkdocs.structure.files import File, Files  # noqa: E402

from docsite import api, commands, mechanisms, methods, notebooks  # noqa: E402

OUTSIDE = {name: f"{name.lower()}.md" for name in ("CONTRIBUTING", "CHANGELOG", "SECURITY")}
"""Files beside docs/ that are pages of the site too."""

TABLES = {"methods/index.md": "", "mechanisms.md": "mechanisms/"}
"""Pages with tables of what has pages of its own, and the folder of these."""


def on_config(config: Any) -> Any:
    """The sections of the navigation whose pages follow from the code or from folders."""
    docs = Path(config.docs_dir)
    sections = {entry: pages for group in config.nav for entry, pages in group.items()}
    sections["Methods"][:] = ["methods/index.md", *[f"methods/{name}.md" for name in methods.names()]]
    sections["Mechanisms"][:] = ["mechanisms.md", *[f"mechanisms/{name}.md" for name in mechanisms.names()]]
    inner = {
        entry: pages for group in ("Reference", "Project") for one in sections[group] for entry, pages in one.items()
    }
    inner["Command line"][:] = ["commands/index.md", *[f"commands/{name}.md" for name in commands.names()]]
    inner["Python"][:] = ["python/index.md", *[f"python/{name}.md" for name in api.names()]]
    for folder in ("Proofs", "Decisions"):
        inner[folder][:] = [f"{folder.lower()}/{page.name}" for page in sorted((docs / folder.lower()).glob("*.md"))]
    listed = set(re.findall(r"[\w/.-]+\.md", str(config.nav)))
    for page in sorted(docs.glob("*.md")):
        if page.name not in listed:
            sections["Results" if page.name.startswith("results") else "Guides"].append(page.name)
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages."""
    generated = {
        **{f"mechanisms/{name}.md": mechanisms.page(name) for name in mechanisms.names()},
        **{f"notebooks/{name}.md": notebooks.page(name) for name in notebooks.names()},
        "commands/index.md": commands.index(),
        **{f"commands/{name}.md": commands.page(name) for name in commands.names()},
        "python/index.md": api.index(),
        **{f"python/{name}.md": api.page(name) for name in api.names()},
        **{page: (ROOT / f"{name}.md").read_text(encoding="utf-8") for name, page in OUTSIDE.items()},
    }
    for path, text in generated.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Fill in the parts of a method's page, and lead links that go outside docs/ to where they are in the site."""
    path = page.file.src_uri
    up = "../" * path.count("/")
    text = methods.filled(Path(path).stem, markdown) if path.startswith("methods/") else markdown
    for name, target in OUTSIDE.items():
        text = text.replace(f"]({up}../{name}.md", f"]({up}{target}")
    if path in OUTSIDE.values():
        text = text.replace("](docs/", "](")
    for table, folder in TABLES.items():
        if path == table:
            text = re.sub(r"^\| `([a-z-]+)`", rf"| [`\1`]({folder}\1.md)", text, flags=re.MULTILINE)
    return text
