# Made by capi/version.py: do not edit.
# The release and the ABI level that this was made from, and the name of that library.
const RELEASE = v"0.1.0"
const ABI_MAJOR, ABI_MINOR = Int32(0), Int32(0)
const LIBRARY = "libgangway.so.0"
