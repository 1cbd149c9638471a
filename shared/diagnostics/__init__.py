"""Checks of `evertalk doctor`, and the report of their findings.

`doctor` runs the checks of this machine, of servers and of stored rows; `security_review` runs those of
`--security`. A check returns findings and changes nothing. Begin with `doctor`.
"""
