"""Set-up in the browser: settings, tests of settings, and the checklist of the first days. Begin with
`settings.py`: every setting, and changes by compare-and-set over `shared/config/stored.py`.
"""
