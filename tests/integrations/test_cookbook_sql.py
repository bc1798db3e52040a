"""The code of the cookbook's pages on PostgreSQL runs, against a real server."""

from pathlib import Path
from types import ModuleType

import psycopg
import pytest

from tools.pages import read_blocks, run_python

PAGES = Path(__file__).parents[2] / "docs" / "cookbook"


@pytest.mark.parametrize("name", ["psycopg", "psycopg2", "asyncpg"])
def test_the_code_of_a_page_runs_against_a_server(name, postgres_database):
    """A reader who puts the address of a server into it gets what the page shows."""
    with psycopg.connect(postgres_database) as connection:
        connection.execute("CREATE TABLE accounts (id int PRIMARY KEY, amount int)")
        connection.execute("INSERT INTO accounts VALUES (1, 100), (2, 100)")
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    page = page.replace("postgresql://localhost/shop", postgres_database)
    (block,) = [block for block in read_blocks(page) if block.language == "python"]
    module = ModuleType("page")
    run_python(block, name, module)
    with psycopg.connect(postgres_database) as connection:
        amounts = connection.execute("SELECT amount FROM accounts ORDER BY id").fetchall()
    assert amounts == [(90,), (110,)]
    if name == "psycopg":
        module.pool.close()
