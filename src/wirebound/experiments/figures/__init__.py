"""The figures of the paper, each a small file: what it claims, which runs it needs, what is drawn from them.

``registry.FIGURES`` names them all, ``reproduce.reproduce`` runs them, ``wirebound reproduce`` is the command.
"""
