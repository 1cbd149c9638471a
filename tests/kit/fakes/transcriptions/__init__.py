"""A strict fake of services that offer OpenAI's `/v1/audio/transcriptions`, run as a process.

It "hears" the words that a test has written into a recording (`recording("Hello")`). It refuses what a real
service refuses: unknown fields, endings and models, an empty file, and content of another kind than its name
says.
"""
