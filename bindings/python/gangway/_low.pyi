# Made by SWIG from the public headers: every function and constant under its C name, and what the package adds.
from typing import Any

class View:
    """Memory with what keeps it alive; NumPy, PyTorch and JAX take it by from_dlpack."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: int
    count: int
    contiguous: bool
    read_only: bool
    exports: int
    def __dlpack__(
        self, *, stream: Any = None, max_version: tuple[int, int] | None = None, dl_device: Any = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

def __getattr__(name: str) -> Any: ...
