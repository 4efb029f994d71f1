// Made by capi/version.py: do not edit.
/// The release that these bindings were made from.
pub const RELEASE: (i32, i32, i32) = (0, 1, 0);
/// The ABI level that these bindings were made from.
pub const ABI: (i32, i32) = (0, 0);
/// The name of the library of that level.
pub const LIBRARY: &str = "libgangway.so.0";
