"""Read models of the dashboard.

One SQL statement for each page, which PostgreSQL answers as one JSON text; `session_list` pages through a
million conversations, `alerts` keeps what needs an operator. Begin with `read_models.Insights`.
"""
