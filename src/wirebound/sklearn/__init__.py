"""scikit-learn estimators whose networks keep a strict budget of connections: ``DeepRClassifier``, ``DeepRRegressor``.

    from wirebound.sklearn import DeepRClassifier
    DeepRClassifier(budget=500, random_state=0).fit(X, y).predict(X)
"""

try:
    import sklearn  # noqa: F401
except ImportError as error:
    raise ImportError("wirebound.sklearn needs scikit-learn: pip install 'wirebound[sklearn]'") from error

from wirebound.sklearn.estimators import DeepRClassifier, DeepRRegressor

__all__ = ["DeepRClassifier", "DeepRRegressor"]
