"""The reference of known errors is what the tables have."""

from tools import libraries_doc

HOW = "run .venv/bin/python tools/libraries_doc.py --write and review the diff"


def test_the_page_is_what_the_tables_have():
    """A table that changes changes the page."""
    written = libraries_doc.FILE.read_text(encoding="utf-8") if libraries_doc.FILE.exists() else ""
    assert written == "\n".join(libraries_doc.page()), f"{libraries_doc.FILE.name}: {HOW}"


def test_statuses_that_every_client_shares_are_listed_once():
    """A library's own rows are not hidden behind them."""
    page = list(libraries_doc.page())
    assert "| status 429 | throttled | yes |  | status 429 |" in page
    assert "| `httpx.HTTPStatusError`, status | [by its status](#http-statuses) | | | | |" in page
    assert not any("HTTPStatusError`, status 429" in line for line in page)
