"""Presets: named policies, a module each. `steady` is ours, the others keep a context as their sources do.

`catalog` finds every module here that has a `PRESET`, so that a new preset is one file. `shares` holds what
most of the others have in common.
"""
