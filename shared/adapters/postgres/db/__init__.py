"""Connection to PostgreSQL and what all stores share.

`pool` opens connections and translates errors, `urls` reads addresses for asyncpg, SQLAlchemy and libpq
alike, `leases` and `workers` say which processes live. Begin with `pool`.
"""
