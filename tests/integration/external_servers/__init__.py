"""PostgreSQL, PgBouncer and Redis as somebody else runs them: with TLS, passwords, a pooler and a second
host. Without Debian's packages these tests are skipped; in CI they fail.
"""
