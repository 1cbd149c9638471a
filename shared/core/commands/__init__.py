"""Commands that people type, the same on every channel.

`commands` is the table of them, `arguments` reads what stands behind a name, `texts` holds what they
answer, by language. Begin with `commands`.
"""
