//! How errors and panics of callbacks pass through the library, which knows only a status: the rest is kept
//! on the thread that ran the callback until the library's call returns there.
use crate::error::{Code, Error, Result};
use gangway_sys as sys;
use std::any::Any;
use std::cell::RefCell;
use std::os::raw::c_void;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// What a callback failed by, and whether the library got a status for it or a mere "no".
struct Own {
    error: Error,
    only_no: bool,
}

thread_local! {
    static OWN: RefCell<Option<Own>> = RefCell::default();
}

/// Runs a callback; its error or panic is kept for the call that runs it.
pub(crate) fn run(body: impl FnOnce() -> Result<()>) -> sys::gw_status {
    let mut error = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return sys::GW_OK,
        Ok(Err(error)) => error,
        Err(panic) => Error::caller(panic_text(panic)),
    };
    if let Code::Unknown(_) = error.code {
        error.code = Code::Caller; // as the library takes a number that it does not know
    }
    let status = error.code.number();
    say(&error.text);
    OWN.with(|own| *own.borrow_mut() = Some(Own { error, only_no: false }));
    status
}

/// Runs a callback that can only say yes or no; after a panic it is no, for which the library refuses.
pub(crate) fn run_asked(body: impl FnOnce() -> bool) -> bool {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let error = Error::caller(panic_text(panic));
        say(&error.text);
        OWN.with(|own| *own.borrow_mut() = Some(Own { error, only_no: true }));
        false
    })
}

/// Puts the text into the library's own error, which the peers get, too.
fn say(text: &str) {
    if let Ok(text) = std::ffi::CString::new(text.replace('\0', " ")) {
        unsafe { sys::gw_error_set(text.as_ptr()) };
        crate::error::lacking(); // to an older library the text does not matter
    }
}

/// The error of a call, with a callback's own code and text when that is why it failed: for the library, what
/// a store returns is `Caller`.
#[cold]
pub(crate) fn with_own(mut error: Error) -> Error {
    if let Some(own) = OWN.with(|own| own.borrow_mut().take()) {
        let said = own.error.text.replace(|c: char| c.is_control(), " "); // as the library does
        let same = own.error.code == error.code || error.code == Code::Caller;
        let refused = own.only_no && error.code == Code::NotSupported;
        if refused || same && error.text.contains(&said) {
            (error.code, error.text, error.source) = (own.error.code, own.error.text, own.error.source);
        }
    }
    error
}

/// Runs what cannot fail, like a drop: a panic there must not cross the library, and no caller could take it.
pub(crate) fn run_quietly(body: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(body)) {
        std::mem::forget(panic); // its own drop may panic again
    }
}

fn panic_text(panic: Box<dyn Any + Send>) -> String {
    let text = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "a callback panicked".to_owned(),
    };
    std::mem::forget(panic);
    text
}

/// A `gw_free_fn` for a box of `T`.
pub(crate) unsafe extern "C" fn free_box<T>(user: *mut c_void) {
    if !user.is_null() {
        run_quietly(|| drop(Box::from_raw(user.cast::<T>())));
    }
}
