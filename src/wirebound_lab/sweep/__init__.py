"""Many training runs over settings and seeds: on this machine, or on several through a shared Optuna storage."""
