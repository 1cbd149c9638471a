"""Parts that tests of several folders share: fakes of outside services, drivers of the running system,
helpers.

This folder contains no tests; those of the fakes are in `tests/integration/kit`. Begin with `app_driver.py`
and `builders.py`.
"""
