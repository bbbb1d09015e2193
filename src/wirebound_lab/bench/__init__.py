"""``wirebound bench``: every goal of speed and memory, measured on this machine, baselines in the same run. A contender
is timed only after its answer was found equal to that of the first."""
