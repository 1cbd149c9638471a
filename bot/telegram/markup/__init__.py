"""Answers as Telegram messages.

`block_tree` reads Markdown, `entity_text` makes text with entities of it and cuts that into messages, and
`rich_blocks` makes rich messages. Begin with `entity_text`.
"""
