"""Journeys over the running system: a person talks, and what they see, what is stored and what it costs
is checked in the end. Folders are subjects. They are written with `tests/kit/app_driver.py`; begin with
`turns/test_conversation.py`.
"""
