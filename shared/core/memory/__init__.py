"""Search in what was said, and upkeep of notes.

`recall` ranks passages, `knowledge` cuts files into them, `consolidation` finds notes that say the same.
Begin with `recall`.
"""
