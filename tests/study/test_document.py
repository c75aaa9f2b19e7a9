from __future__ import annotations

from pathlib import Path

import pytest
from test_show import filled

from hushgraph.errors import InputError
from hushgraph.study.document import write_document

TEMPLATE = """# Shown

Text with {braces} in it stays.

{table main}

{table main}

{plot curves}

{behind main | mlp}

{behind main | gap}

{behind main | nobody}

{runs}
"""


def test_a_page_has_the_tables_and_plots_that_its_text_asks_for(tmp_path: Path) -> None:
    (tmp_path / "page.md.in").write_text(TEMPLATE)
    written = write_document(filled(tmp_path), tmp_path / "page.md.in", tmp_path / "docs" / "page.md")
    assert [str(path.relative_to(tmp_path)) for path in written] == ["docs/page.md", "docs/pictures/page-curves.svg"]
    text = written[0].read_text()
    assert "Text with {braces} in it stays." in text
    assert "| campus | 1 | 75.8 ± 1.5 (4) | 65.8 ± 1.5 (4) |" in text
    assert "![curves](pictures/page-curves.svg)" in text
    assert "Over the same seeds `mlp` is lower in 6 of 6 comparisons" in text
    assert "- campus, 1: 10.0 below gap (4)\n" in text
    assert "Over the same seeds `gap` is lower in 0 of 6 comparisons." in text
    assert text.count("test_accuracy: mean, 95% interval") == 1
    assert "`nobody` was not run." in text
    assert "Runs of the study: 80 done. Hash of the code that ran them: " in text


def test_what_was_not_run_is_said(tmp_path: Path) -> None:
    (tmp_path / "page.md.in").write_text("{table main}\n{plot curves}\n{runs}\n")
    results = filled(tmp_path)
    results.store.path.unlink()
    results = type(results)(results.study, type(results.store)(results.store.path))
    text = write_document(results, tmp_path / "page.md.in", tmp_path / "page.md")[0].read_text()
    assert text == "Not run.\nNot run.\nRuns of the study: 80 missing.\n"


def test_all_that_is_wrong_with_a_text_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "page.md.in").write_text("{table mian}\n{plot main}\n{behind main}\n{table main | gap}\n")
    with pytest.raises(InputError) as caught:
        write_document(filled(tmp_path), tmp_path / "page.md.in", tmp_path / "page.md")
    words = str(caught.value)
    assert "line 1: the study has no table 'mian'" in words
    assert "line 2: the study has no plot 'main'" in words
    assert "line 3: expected {table NAME}" in words
    assert "line 4: expected {table NAME}" in words
    assert not (tmp_path / "page.md").exists()
    with pytest.raises(InputError, match="write one first"):
        write_document(filled(tmp_path), tmp_path / "nothing.md.in", tmp_path / "page.md")
