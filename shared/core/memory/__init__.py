"""Finding again what was said, and keeping notes few.

`recall` ranks passages, `knowledge` cuts files into them, `consolidation` finds notes that say the same.
Begin with `recall`.
"""
