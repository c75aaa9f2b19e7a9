"""Pages of notebooks: their text, their code, and what was shown when they were last run (`make notebooks`)."""

from __future__ import annotations

from notebooks import NOTEBOOKS, read, source


def names() -> list[str]:
    """All notebooks."""
    return [path.stem for path in NOTEBOOKS]


def page(name: str) -> str:
    """One notebook as Markdown."""
    path = next(one for one in NOTEBOOKS if one.stem == name)
    parts = []
    for cell in read(path)["cells"]:
        if cell["cell_type"] == "markdown":
            parts.append(source(cell))
            continue
        parts.append(f"```python\n{source(cell)}\n```")
        for output in cell["outputs"]:
            shown = "".join(output.get("text") or output["data"]["text/plain"])
            parts.append(f"```text\n{shown.rstrip()}\n```")
    title, *rest = parts
    head, _, first = title.partition("\n")
    return "\n\n".join([head, f"[Download the notebook]({path.name}){{ download }}", first, *rest]) + "\n"
