//! The C ABI of libgangway: types and functions as bindgen writes them, `unsafe` and without any comfort; the
//! crate `gangway` is the one to use. The comments are those of the headers under `capi/include/gangway`. A
//! function without one does only what the comment at the top of `base.h` says of its name: `_init`,
//! `_retain`, `_release`, `_async`.
//!
//! The library is linked as `libgangway.so`. With the feature `dlopen` it is opened at run time instead (see
//! `load`): the functions below have the same names and types and go through the table of `gw_get_api`.
#![allow(non_camel_case_types, non_upper_case_globals)]
#![deny(missing_debug_implementations)]
// The headers' comments are written for C.
#![allow(rustdoc::broken_intra_doc_links, rustdoc::invalid_html_tags, rustdoc::bare_urls)]

mod level;
mod version;
pub use level::{ABI, LIBRARY, RELEASE};
pub use version::refusal;

#[cfg(feature = "dlopen")]
mod dynamic;
#[cfg(feature = "dlopen")]
pub use dynamic::{gw_get_api, lacking, load};

#[cfg(not(feature = "dlopen"))]
extern "C" {
    pub fn gw_get_api(abi_minor: i32) -> *const gw_api;
}

/// Declares functions: as they are when the library is linked, else as calls through the table.
#[cfg(not(feature = "dlopen"))]
macro_rules! functions {
    ($(#[$meta:meta])* $field:ident: pub fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $(-> $result:ty)?;) => {
        extern "C" {
            $(#[$meta])*
            pub fn $name($($argument: $kind),*) $(-> $result)?;
        }
    };
}
#[cfg(feature = "dlopen")]
macro_rules! functions {
    ($(#[$meta:meta])* $field:ident: pub fn $name:ident($($argument:ident: $kind:ty),* $(,)?) -> gw_status;) => {
        $(#[$meta])*
        #[allow(clippy::missing_safety_doc, clippy::too_many_arguments)]
        #[inline]
        pub unsafe fn $name($($argument: $kind),*) -> gw_status {
            match dynamic::table().$field {
                Some(function) => function($($argument),*),
                None => dynamic::refuse(stringify!($name)),
            }
        }
    };
    ($(#[$meta:meta])* $field:ident: pub fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $(-> $result:ty)?;) => {
        $(#[$meta])*
        #[allow(clippy::missing_safety_doc, clippy::too_many_arguments)]
        #[inline]
        pub unsafe fn $name($($argument: $kind),*) $(-> $result)? {
            match dynamic::table().$field {
                Some(function) => function($($argument),*),
                None => dynamic::lacks(stringify!($name)),
            }
        }
    };
}

#[cfg(not(feature = "bindgen"))]
include!("types.rs");
#[cfg(not(feature = "bindgen"))]
include!("functions.rs");
#[cfg(feature = "bindgen")]
include!(concat!(env!("OUT_DIR"), "/types.rs"));
#[cfg(feature = "bindgen")]
include!(concat!(env!("OUT_DIR"), "/functions.rs"));
