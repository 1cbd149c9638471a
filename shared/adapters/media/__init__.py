"""Speech into words and back, and descriptions into pictures: servers with OpenAI's API, or a local model.

Begin with `media_service`. No recording is decoded in a process of ours that does anything else.
"""
