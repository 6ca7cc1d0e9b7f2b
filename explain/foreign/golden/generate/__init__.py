"""Writes down a simulated run's truth as each framework would have logged it.

Nothing here knows what the importer makes of the files. Keys, units, counters and quirks are
those of the frameworks' own sources, at the commits named in each module.
"""
