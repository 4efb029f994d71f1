//! Options and results: plain structs whose defaults come from the library's own `gw_*_init`.
use crate::element::DType;
use crate::error::{Error, Result};
use gangway_sys as sys;
use std::ffi::CString;

/// How a field of a C struct looks in Rust.
pub(crate) trait Field<Raw> {
    fn read(raw: Raw) -> Self;
    fn write(self) -> Raw;
}

macro_rules! plain {
    ($($kind:ty),*) => { $(impl Field<$kind> for $kind {
        fn read(raw: $kind) -> $kind { raw }
        fn write(self) -> $kind { self }
    })* };
}
plain!(i32, i64, u64, f64);

impl Field<i32> for bool {
    fn read(raw: i32) -> bool {
        raw != 0
    }
    fn write(self) -> i32 {
        self as i32
    }
}

impl Field<i32> for DType {
    fn read(raw: i32) -> DType {
        DType(raw)
    }
    fn write(self) -> i32 {
        self.0
    }
}

/// A struct of the library, set up by its init function.
macro_rules! initialised {
    ($raw:ident, $init:ident) => {{
        let mut raw = gangway_sys::$raw::default();
        unsafe { gangway_sys::$init(&mut raw, std::mem::size_of_val(&raw)) };
        raw
    }};
}
pub(crate) use initialised;

/// Declares options: the named fields are those of the C struct; `default` gives the library's values. Fields
/// after `with` are set up and passed on by hand (lists and texts).
macro_rules! options {
    ($(#[$meta:meta])* $name:ident = $raw:ident, $init:ident {
        $($(#[$field_meta:meta])* $field:ident: $kind:ty,)*
    } $(with { $($(#[$extra_meta:meta])* $extra:ident: $extra_kind:ty = $extra_value:expr,)* })?) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $kind,)*
            $($($(#[$extra_meta])* pub $extra: $extra_kind,)*)?
        }

        impl Default for $name {
            fn default() -> Self {
                Self::from_raw(crate::options::initialised!($raw, $init))
            }
        }

        impl $name {
            fn from_raw(raw: gangway_sys::$raw) -> Self {
                $name {
                    $($field: crate::options::Field::read(raw.$field),)*
                    $($($extra: $extra_value,)*)?
                }
            }

            pub(crate) fn raw(&self) -> gangway_sys::$raw {
                let mut raw = crate::options::initialised!($raw, $init);
                $(raw.$field = crate::options::Field::write(self.$field);)*
                raw
            }
        }
    };
}
pub(crate) use options;

/// Gives options whose list of rules goes by name pattern a `with_raw`.
macro_rules! with_rules {
    ($($name:ident.$rules:ident => $raw:ident;)*) => { $(impl $name {
        /// Calls with the C struct; its rules live as long as the call.
        pub(crate) fn with_raw<R>(&self, call: impl FnOnce(*const gangway_sys::$raw) -> R) -> crate::Result<R> {
            let patterns = self.$rules.iter().map(|rule| rule.pattern.as_str());
            let patterns = crate::options::c_texts(patterns, "pattern")?;
            let rules = self.$rules.iter().zip(&patterns).map(|(rule, pattern)| {
                let mut raw = rule.raw();
                raw.pattern = pattern.as_ptr();
                raw
            });
            let rules: Vec<_> = rules.collect();
            let mut raw = self.raw();
            if !rules.is_empty() {
                raw.rules = rules.as_ptr();
                raw.rule_count = rules.len();
            }
            Ok(call(&raw))
        }
    })* };
}
pub(crate) use with_rules;

/// Declares a result that the library fills in.
macro_rules! results {
    ($(#[$meta:meta])* $name:ident = $raw:ident, $init:ident {
        $($(#[$field_meta:meta])* $field:ident: $kind:ty,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $kind,)*
        }

        impl $name {
            /// Lets `call` fill in the struct.
            pub(crate) fn filled(
                call: impl FnOnce(*mut gangway_sys::$raw) -> gangway_sys::gw_status,
            ) -> crate::Result<Self> {
                let mut raw = crate::options::initialised!($raw, $init);
                crate::error::check(call(&mut raw))?;
                Ok($name { $($field: crate::options::Field::read(raw.$field),)* })
            }
        }
    };
}
pub(crate) use results;

/// Declares an open enumeration.
macro_rules! open_enum {
    ($(#[$meta:meta])* $name:ident { $($(#[$value_meta:meta])* $value:ident = $number:ident,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$value_meta])* $value,)*
            /// A number that this crate does not know.
            Unknown(i32),
        }

        impl crate::options::Field<i32> for $name {
            fn read(raw: i32) -> Self {
                match raw {
                    $(gangway_sys::$number => $name::$value,)*
                    other => $name::Unknown(other),
                }
            }
            fn write(self) -> i32 {
                match self {
                    $($name::$value => gangway_sys::$number,)*
                    $name::Unknown(number) => number,
                }
            }
        }
    };
}
pub(crate) use open_enum;

/// A text for the library, which copies it.
pub(crate) fn c_text(text: &str, what: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::argument(format!("{what} {text:?} holds a zero byte")))
}

pub(crate) fn c_texts<'a>(texts: impl Iterator<Item = &'a str>, what: &str) -> Result<Vec<CString>> {
    texts.map(|text| c_text(text, what)).collect()
}

/// Null, or where the text is.
pub(crate) fn text_pointer(text: &Option<CString>) -> *const std::os::raw::c_char {
    text.as_ref().map_or(std::ptr::null(), |text| text.as_ptr())
}

/// Asks the size of a text, then the text.
pub(crate) fn read_text(
    call: impl Fn(*mut std::os::raw::c_char, usize, *mut usize) -> sys::gw_status,
) -> Result<String> {
    let mut length = 0;
    crate::error::check(call(std::ptr::null_mut(), 0, &mut length))?;
    loop {
        let mut text = vec![0u8; length + 1];
        let capacity = text.len();
        crate::error::check(call(text.as_mut_ptr().cast(), capacity, &mut length))?;
        if length < capacity {
            text.truncate(length);
            return Ok(String::from_utf8_lossy(&text).into_owned());
        } // it grew in between
    }
}

pub(crate) fn path_text(path: &std::path::Path) -> Result<CString> {
    let bytes = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str());
    CString::new(bytes).map_err(|_| Error::argument(format!("path {path:?} holds a zero byte")))
}
