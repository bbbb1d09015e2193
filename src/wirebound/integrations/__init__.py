"""Callbacks for training frameworks, which none of them needs: ``optimizer.step()`` is the step of the method."""
