"""What an operator can set, and how it is checked.

`settings` reads the environment and `.env` once; `agents`, `sites` and `bots` check what is written into a
row or a file. Every problem is reported at once, with its place. Begin with `settings.Settings`.
"""
