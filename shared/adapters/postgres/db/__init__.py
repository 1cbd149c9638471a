"""The connection to PostgreSQL, whatever is asked over it.

`pool` opens it and translates errors, `urls` reads addresses for asyncpg, SQLAlchemy and libpq alike,
`leases` and `workers` say which process lives. Begin with `pool`.
"""
