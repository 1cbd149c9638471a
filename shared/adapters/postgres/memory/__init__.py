"""Stores of notes, recall, knowledge and reminders.

`recall` searches hidden messages and notes by an index that `recall_index` fills. Begin with `notes`.
"""
