"""Slash commands, the same on every channel.

`commands` is their table, `arguments` reads the text after a command's name, `texts` has the texts of
answers. Begin with `commands`.
"""
