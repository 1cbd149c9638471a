"""Converts the Markdown of answers to Telegram messages.

`block_tree` parses Markdown into blocks, `entity_text` turns blocks into text with entities and splits that
into messages, and `rich_blocks` makes rich messages. Begin with `entity_text`.
"""
