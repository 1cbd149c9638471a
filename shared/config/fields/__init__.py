"""Declarations of all settings, by subject: a setting stands here once, with type, default, text, form and
processes. `declaration` has what a field says beside pydantic's own, `kinds` the checked types of values.
Begin with `spending`. The dashboard's form, docs/settings.md and docker-compose.yml are written from it.
"""
