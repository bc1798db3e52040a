"""The tables as the code of a migration: one statement at a time, which every driver takes."""

from __future__ import annotations

from mainstay.stores.outbox.schema import exported, statements

_ALEMBIC = """from alembic import op

STATEMENTS = {listed}


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
"""
_DJANGO = """from django.db import migrations

STATEMENTS = {listed}


class Migration(migrations.Migration):
    dependencies = []  # add the last one of your app

    operations = [migrations.RunSQL(STATEMENTS)]
"""
TOOLS = {"alembic": _ALEMBIC, "django": _DJANGO}


def migration(tool: str, dialect: str, after: int) -> str:
    """The code for a tool.

    >>> print(migration("alembic", "sqlite", 0).splitlines()[0])
    from alembic import op
    """
    found = statements(dialect, exported(dialect, after))
    listed = "".join(f'    r"""{each}""",\n' for each in found)
    return TOOLS[tool].format(listed=f"[\n{listed}]")
