# Made by capi/version.py: do not edit.
"""The release and the ABI level that this was made from, and the name of that library."""

RELEASE = (0, 1, 0)
ABI = (0, 0)
LIBRARY = "libgangway.so.0"
