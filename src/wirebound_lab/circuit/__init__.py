"""The connections of a trained network, to be walked through, and the few of them that do a piece of work.

``stored``, ``graph`` and ``page`` need no torch and know run folders alone; ``ablate`` and ``find`` run the network.
"""
