"""Tables without a vocabulary on the ps: rows that are found by their keys.

What belongs to one ps is called under its device, and changed by one caller at a time.
"""
