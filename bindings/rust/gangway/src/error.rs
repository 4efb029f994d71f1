use gangway_sys as sys;
use std::ffi::CStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong. Open: a newer library may return numbers that this crate does not know.
///
/// Any call may return `InvalidArgument` (a number is outside of its range, or a text holds a zero byte; the
/// error names it), `OutOfMemory`, `Forked` and `Internal`. Its documentation says what else to expect. A
/// collective, and what calls one, may also return `InvalidState` (the gang was shut down), and `Mismatch`,
/// `PeerLost`, `Timeout`, `Aborted`, `Caller` or `Gang`, after which the gang is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// The arguments are wrong.
    InvalidArgument,
    /// The call is correct, but this build or engine cannot do it.
    NotSupported,
    /// Too early or too late: the text names the call that is missing.
    InvalidState,
    /// A collective failed.
    Gang,
    /// A rank died or left without shutdown.
    PeerLost,
    /// The gang's deadline passed; the gang is broken.
    Timeout,
    /// Ranks called different collectives.
    Mismatch,
    /// The gang was aborted, here or on a peer.
    Aborted,
    /// A wait ran out; harmless.
    NotReady,
    NotFound,
    /// Called in a forked child.
    Forked,
    /// A callback's own error or panic, or the interrupt hook.
    Caller,
    OutOfMemory,
    Io,
    /// Bytes of a file are not what they should be.
    Corrupt,
    /// A fault of the library.
    Internal,
    /// Another thread is in a call on the object; nothing was done.
    Busy,
    Unknown(i32),
}

const CODES: [(Code, sys::gw_status); 17] = [
    (Code::InvalidArgument, sys::GW_E_INVALID_ARGUMENT),
    (Code::NotSupported, sys::GW_E_NOT_SUPPORTED),
    (Code::InvalidState, sys::GW_E_INVALID_STATE),
    (Code::Gang, sys::GW_E_GANG),
    (Code::PeerLost, sys::GW_E_PEER_LOST),
    (Code::Timeout, sys::GW_E_TIMEOUT),
    (Code::Mismatch, sys::GW_E_MISMATCH),
    (Code::Aborted, sys::GW_E_ABORTED),
    (Code::NotReady, sys::GW_E_NOT_READY),
    (Code::NotFound, sys::GW_E_NOT_FOUND),
    (Code::Forked, sys::GW_E_FORKED),
    (Code::Caller, sys::GW_E_CALLER),
    (Code::OutOfMemory, sys::GW_E_OUT_OF_MEMORY),
    (Code::Io, sys::GW_E_IO),
    (Code::Corrupt, sys::GW_E_CORRUPT),
    (Code::Internal, sys::GW_E_INTERNAL),
    (Code::Busy, sys::GW_E_BUSY),
];

impl Code {
    pub fn from_number(number: i32) -> Code {
        CODES.iter().find(|(_, n)| *n == number).map_or(Code::Unknown(number), |(code, _)| *code)
    }

    pub fn number(self) -> i32 {
        match self {
            Code::Unknown(number) => number,
            known => CODES
                .iter()
                .find(|(code, _)| *code == known)
                .map_or(sys::GW_E_INTERNAL, |(_, number)| *number),
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Static text.
        let name = unsafe { CStr::from_ptr(sys::gw_status_name(self.number())) }.to_string_lossy();
        match self {
            Code::Unknown(number) => write!(f, "{name}({number})"),
            _ => f.write_str(&name),
        }
    }
}

/// A failed call. Prints as `CODE: text`, also by `{:?}`, so that `fn main() -> gangway::Result<()>` reads
/// well. What a callback failed by is its `source()` on the rank where it ran: `?` makes an `Error` of a boxed
/// error and of std's, [`Error::from_source`] of any other.
#[derive(Clone)]
pub struct Error {
    pub code: Code,
    /// One line: component, fact and numbers; or the text of a callback's own error or panic.
    pub text: String,
    /// The gang's name, or "".
    pub gang: String,
    /// The call or collective, or "".
    pub op: Box<str>,
    /// Rank in the gang.
    pub rank: Option<usize>,
    pub peer: Option<usize>,
    /// `errno`, or 0.
    pub system_error: i32,
    // Boxed twice: a Result is moved often.
    pub(crate) source: Option<Arc<Source>>,
}

type Source = Box<dyn std::error::Error + Send + Sync>;

/// The source of an error of a file: `path: what the system said`.
#[derive(Debug)]
struct FileError {
    path: PathBuf,
    error: std::io::Error,
}

impl FileError {
    fn of(info: &sys::gw_error_info) -> Option<Arc<Source>> {
        let path = borrowed_text(info.path);
        let error = std::io::Error::from_raw_os_error(info.system_error);
        (!path.is_empty()).then(|| Arc::new(Source::from(FileError { path: path.into(), error })))
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.error)
    }
}

impl std::error::Error for FileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl Error {
    pub fn new(code: Code, text: impl Into<String>) -> Error {
        let (text, gang, op) = (text.into(), String::new(), Box::default());
        Error { code, text, gang, op, rank: None, peer: None, system_error: 0, source: None }
    }

    /// A callback's own error, caused by another error.
    pub fn from_source(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        let source = source.into();
        let error = Error::caller(source.to_string());
        Error { source: Some(Arc::new(source)), ..error }
    }

    /// An error of a callback's own.
    pub fn caller(text: impl Into<String>) -> Error {
        Error::new(Code::Caller, text)
    }

    /// The kind that the system reported, for [`Code::Io`]: `NotFound` for a missing file and so on.
    pub fn io_kind(&self) -> Option<std::io::ErrorKind> {
        let kind = || std::io::Error::from_raw_os_error(self.system_error).kind();
        (self.code == Code::Io && self.system_error != 0).then(kind)
    }

    /// The file that the system refused, if that is what went wrong.
    pub fn path(&self) -> Option<&Path> {
        let source: &Source = self.source.as_deref()?;
        source.downcast_ref::<FileError>().map(|file| file.path.as_path())
    }

    pub(crate) fn argument(text: impl Into<String>) -> Error {
        Error::new(Code::InvalidArgument, text)
    }

    /// This thread's last error, which came with `status`.
    #[cold]
    pub(crate) fn last(status: sys::gw_status) -> Error {
        if let (sys::GW_E_NOT_SUPPORTED, Some(text)) = (status, lacking()) {
            return Error::new(Code::NotSupported, text);
        }
        let mut info = sys::gw_error_info::default();
        unsafe {
            sys::gw_error_info_init(&mut info, std::mem::size_of_val(&info));
            sys::gw_last_error(&mut info);
        }
        let rank = |number: i32| usize::try_from(number).ok();
        Error {
            code: Code::from_number(status),
            text: borrowed_text(info.message),
            gang: borrowed_text(info.gang),
            op: borrowed_text(info.op).into(),
            rank: rank(info.rank),
            peer: rank(info.peer),
            system_error: info.system_error,
            source: FileError::of(&info),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.text)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| &***source as _)
    }
}

impl From<Source> for Error {
    fn from(source: Source) -> Error {
        match source.downcast::<Error>() {
            Ok(error) => *error,
            Err(source) => Error::from_source(source),
        }
    }
}

impl From<std::io::Error> for Error {
    fn from(source: std::io::Error) -> Error {
        let system_error = source.raw_os_error().unwrap_or(0);
        Error { code: Code::Io, system_error, ..Error::from_source(source) }
    }
}

/// Has the kind that the system reported, and the whole error as its source.
impl From<Error> for std::io::Error {
    fn from(error: Error) -> std::io::Error {
        std::io::Error::new(error.io_kind().unwrap_or(std::io::ErrorKind::Other), error)
    }
}

macro_rules! from_errors_of_std {
    ($($source:ty),*) => {$(
        impl From<$source> for Error {
            fn from(source: $source) -> Error {
                Error::from_source(source)
            }
        }
    )*};
}

from_errors_of_std!(
    fmt::Error,
    std::num::ParseFloatError,
    std::num::ParseIntError,
    std::num::TryFromIntError,
    std::str::Utf8Error,
    std::string::FromUtf8Error
);

/// Why the last call did not reach the library: an older library does not have the function.
pub(crate) fn lacking() -> Option<String> {
    #[cfg(feature = "dlopen")]
    return sys::lacking();
    #[cfg(not(feature = "dlopen"))]
    return None;
}

/// Copies a text of the library; null is "".
pub(crate) fn borrowed_text(text: *const std::os::raw::c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Turns the status of a call that has just returned on this thread into a result.
#[inline]
pub(crate) fn check(status: sys::gw_status) -> Result<()> {
    if status == sys::GW_OK {
        return Ok(());
    }
    Err(crate::callback::with_own(Error::last(status)))
}

/// The library is of a release that this crate fits.
fn check_library() -> Result<()> {
    static FITS: AtomicBool = AtomicBool::new(false);
    if FITS.load(Ordering::Relaxed) {
        return Ok(());
    }
    if let Some(text) = sys::refusal(crate::version(), crate::abi_version()) {
        return Err(Error::new(Code::NotSupported, text));
    }
    FITS.store(true, Ordering::Relaxed);
    Ok(())
}

/// Takes over a handle that a call has just made. Every use of the library begins with one, so an
/// incompatible library is refused here.
pub(crate) fn made<T>(status: sys::gw_status, handle: *mut T) -> Result<std::ptr::NonNull<T>> {
    check_library()?;
    check(status)?;
    std::ptr::NonNull::new(handle).ok_or_else(|| Error::new(Code::Internal, "the library made a null handle"))
}
