"""Configuration and its checks. `settings` reads the environment and `.env` once; `agents`, `sites` and
`bots` check rows and files. Every problem is reported at once, with its place. Begin with
`settings.Settings`.
"""
