"""Makes the widget's modules small: reads, joins and shortens scripts and styles when the server starts.
Begin with `packing.pack`.
"""
