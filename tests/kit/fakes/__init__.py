"""Strict stand-ins for the services that Evertalk talks with.

`messages_api`, `bot_api` and `oidc` run as processes of their own (`python -m tests.kit.fakes.bot_api`);
the others run inside the test.
"""
