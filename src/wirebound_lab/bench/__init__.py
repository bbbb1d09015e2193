"""``wirebound bench``: every goal of speed and memory, measured on this machine, baselines in the same run.

Each section is one file with ``measure(settings) -> Section``; ``suite.py`` lists and runs them. A table of times is a
``Contest``: its workloads, who does their work, and what is wanted. A contender is timed only after its answer was
found equal to that of the first.
"""
