"""Stores: where ranks meet."""

from __future__ import annotations

from typing import Any

from . import _low as c
from . import low
from .structs import PathLike, path_of, struct


class Store:
    """A store by subclassing: put, get and remove, called on the thread that is in Gang.create() or init(), and on no
    other; a store that several threads create gangs by is called by each."""

    __slots__ = ("_h", "__dict__", "__weakref__")  # the handle is not among the attributes that callbacks share

    def __init__(self) -> None:
        # The library owns a reference on the callbacks, not on this object, which owns the library's handle.
        callbacks = _Callbacks(type(self), self.__dict__)
        self._h = c.gw_store_create_callbacks(struct(
            "gw_store_callbacks", put=low.py_put, get=low.py_get, remove=low.py_remove, user=callbacks,
            free_user=low.py_free))

    def put(self, key: str, value: bytes) -> None:
        """Stores a value."""
        raise NotImplementedError

    def get(self, key: str) -> bytes | None:
        """The value, or None when the key is absent."""
        raise NotImplementedError

    def remove(self, key: str) -> None:
        """Forgets a key."""
        raise NotImplementedError


class _Callbacks:
    """A store's methods over its attributes, on an object that has no handle."""

    def __init__(self, kind: type[Store], attributes: dict[str, Any]) -> None:
        twin = kind.__new__(kind)
        twin.__dict__ = attributes
        self.put, self.get, self.remove = twin.put, twin.get, twin.remove


class FileStore(Store):
    """A folder that all ranks of this host see."""

    def __init__(self, folder: PathLike) -> None:
        self._h = c.gw_store_create_file(path_of(folder, "folder"))
