"""Queries of the dashboard's pages.

Each page is one SQL statement that PostgreSQL answers as one JSON text; `session_list` pages through a
million conversations, `alerts` stores what needs an operator. Begin with `read_models.Insights`.
"""
