"""Benchmarks of mainstay beside its peers, as ratios within one run.

`python -m bench` prints every table; bench/README.md says how to read them. A module of this
package that has a `run(effort)` function is a table: adding a table is adding a file.
"""
