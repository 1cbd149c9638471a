"""REST for visitors and programs: messages, commands, files, exports, memory and recovery codes. The
table of all operations is in `web.routes`. Begin with `messages`.
"""
