"""One part of the product with the real thing behind it: PostgreSQL, Valkey, a loopback socket or a child
process. Folders are the floors and rooms of the product; the fixtures for servers stand in
`tests/conftest.py`. Begin with `adapters/postgres/schema` and `web/chat/test_socket_chat.py`.
"""
