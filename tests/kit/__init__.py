"""What tests of several folders share: fakes of outside services, drivers for the running system, and
small helpers. Nothing here is a test; tests of the fakes are in `tests/integration/kit`. Begin with
`app_driver.py` and `builders.py`.
"""
