"""Whole runs of the tests: how `./evertalk test` starts them, and what a failure means.

Begin with `command_line.py`, which reads the words after `test`. `second_run.py` runs each failed test again,
alone, and decides whether the run is green. `hunt.py` runs one test many times on a busy machine.
"""
