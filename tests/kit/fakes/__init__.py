"""Strict fakes of the services that Evertalk uses.

`messages_api`, `bot_api` and `oidc` run as separate processes (`python -m tests.kit.fakes.bot_api`); the
others run inside the test.
"""
