"""Whole runs of the tests: how `./evertalk test` starts them, and how it judges failures.

Begin with `command_line.py`, which reads the words after `test`. `second_run.py` runs each failed test again,
alone, and decides whether the run passes. `hunt.py` runs one test many times on a busy machine.
"""
