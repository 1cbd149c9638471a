"""The command line, one module per verb of `./evertalk`.

`shared/__main__` parses the verb and calls `run_…` here; each returns an exit code and prints sentences for
a person. Begin with `up`, which starts everything; `backup`, `restore` and `upgrade` belong together.
"""
