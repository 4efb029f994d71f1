"""The library that is loaded, and whether it fits this package."""

from __future__ import annotations

from . import _low as _c
from .level import ABI, RELEASE


def version() -> tuple[int, int, int]:
    """Of the library that is loaded."""
    major, minor, patch = _c.gw_version()
    return major, minor, patch


def abi_version() -> tuple[int, int]:
    """The ABI level of the library that is loaded."""
    major, minor = _c.gw_abi_version()
    return major, minor


def _text(release: tuple[int, ...], abi: tuple[int, int]) -> str:
    return f"{'.'.join(map(str, release))} (ABI level {abi[0]}.{abi[1]})"


def check() -> None:
    """ImportError unless the library is of the same major level, and of no lower minor one. Level 0 is open, so there the
    release has to be the same, up to its last part."""
    release, abi = version(), abi_version()
    if abi[0] != ABI[0] or abi[1] < ABI[1] or (ABI[0] == 0 and release[:2] != RELEASE[:2]):
        raise ImportError(f"libgangway {_text(release, abi)} does not fit the Python package {_text(RELEASE, ABI)}: install "
                          "the library and the package of one release (LD_LIBRARY_PATH and LD_PRELOAD may bring another)")
