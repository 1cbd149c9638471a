"""Checks of `evertalk doctor`, and how findings are reported. `doctor` runs the checks of the other modules
against settings, servers and rows; `security_review` does the same for `--security`. A check returns
findings and changes nothing. Begin with `doctor`.
"""
