"""The five documents that Evertalk comes from, line by line, each shown by what Evertalk does.

The documents are foreign texts and no part of this project: a test names a line as `@seed("001", 37)`, by the
number of the document and of the line, and says in its own words what the line asks for. `lines.py` lists the
lines of every document: those that ask for something, and all others with the reason why they do not.
`test_lines.py` compares: no line without a place, no request without a test.

There is one module per document, and its tests stand in the order of the document's subjects. A test that
serves several lines names them all, since documents repeat themselves. "Corrected" in a docstring means that
Evertalk departs from the line on purpose, and says how.

`scenes.py` and `conftest.py` hold what the modules share: apps on real Postgres and Valkey in front of the
strict fake provider. What a long conversation shows to many tests is played once, in a fixture of the module.
"""
