"""What is erased, kept and exported.

`erasure` says what a person's request means, `export` writes everything of a person as Markdown or JSON.
"""
