"""The version of this package, from its installed metadata; "unknown" when run from a bare source tree."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("wirebound")
except PackageNotFoundError:
    __version__ = "unknown"
