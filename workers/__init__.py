"""Bounded work: functions on untrusted input run in processes with limits; patterns on a linear engine.

`pool.py` starts work and waits for it, `host.py` is the process that forks one child for each piece of work,
`process_tree.py` counts and kills what a child started, `patterns.py` matches patterns of authors and of
foreign schemas in linear time.
"""
