"""Blocks and tables are found in a document, or the tests of the doors would hold nothing."""

from tests.conformance.document import Block, blocks, run, tables

TEXT = """# A title

## 1. First part

```python
# Not a heading
x = y + 1
```

```
plain
```

### Second

| name | bound |
|------|:-----:|
| `a`  | 1     |
| b    | 2     |

Words.

| other |
| --- |
| cell |
```
| no table |
```
"""


def test_blocks_have_their_heading_place_and_language():
    """A comment in a block is no heading, and a number before a heading is left out."""
    assert blocks(TEXT) == [
        Block("First part", 1, "python", "# Not a heading\nx = y + 1\n"),
        Block("First part", 2, "", "plain\n"),
        Block("Second", 1, "", "| no table |\n"),
    ]
    assert [block.key for block in blocks(TEXT)] == ["First part", "First part (2)", "Second"]


def test_rows_have_the_names_of_their_columns():
    """What is inside a block is no table."""
    rows = [{"name": "`a`", "bound": "1"}, {"name": "b", "bound": "2"}, {"other": "cell"}]
    assert tables(TEXT) == {"Second": rows}


def test_a_block_is_run_with_the_names_given():
    """What it defines comes back, and what was given does not."""
    found = run(blocks(TEXT)[0], y=2)
    assert (found["x"], "y" in found) == (3, False)
