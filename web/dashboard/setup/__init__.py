"""What an operator sets up in the browser: settings, tests of them, and the checklist of the first days.

Begin with `settings.py`: every setting, and changes by compare-and-set over `shared/config/stored.py`.
"""
