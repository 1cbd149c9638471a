"""A strict stand-in for services that have OpenAI's `/v1/audio/transcriptions`, as a process of its own.

It "hears" what a test has written into a recording (`recording("Hello")`), and refuses what a real service
refuses: unknown fields, endings and models, an empty file, and bytes that are not what the name says.
"""
