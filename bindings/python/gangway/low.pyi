# Made by SWIG from the public headers: every function and struct under its C name.
from typing import Any

def __getattr__(name: str) -> Any: ...
