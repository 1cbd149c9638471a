"""What handlers of the dashboard share to read a request and to write an answer: JSON bodies, typed
parameters, versions of a row, CSV.
"""
