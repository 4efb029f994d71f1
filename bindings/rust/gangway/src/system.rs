use crate::callback::free_box;
use crate::error::{check, Result};
use crate::options::{read_text, results};
use gangway_sys as sys;
use std::cell::Cell;
use std::os::raw::c_void;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::rc::Rc;

/// The release of the library that is loaded: major, minor, patch.
pub fn version() -> (i32, i32, i32) {
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    unsafe { sys::gw_version(&mut major, &mut minor, &mut patch) };
    (major, minor, patch)
}

/// The ABI level of the library that is loaded: major, minor.
pub fn abi_version() -> (i32, i32) {
    let (mut major, mut minor) = (0, 0);
    unsafe { sys::gw_abi_version(&mut major, &mut minor) };
    (major, minor)
}

/// Every environment variable that the library reads, with its value, one a line.
///
/// # Errors
/// Only what any call may return, see [`Code`](crate::Code).
pub fn config_text() -> Result<String> {
    read_text(|text, capacity, length| unsafe { sys::gw_config_text(text, capacity, length) })
}

/// Log lines from number `first` on, and the number to ask for next.
///
/// # Errors
/// Only what any call may return, see [`Code`](crate::Code).
pub fn log_read(first: u64) -> Result<(String, u64)> {
    let next = Cell::new(first);
    let text = read_text(|text, capacity, length| {
        let mut after = first;
        let status = unsafe { sys::gw_log_read(first, text, capacity, length, &mut after) };
        next.set(after);
        status
    })?;
    Ok((text, next.get()))
}

results! {
    /// Bytes of this host; `u64::MAX`: the system does not say.
    HostMemory = gw_memory_info, gw_memory_info_init {
        /// The machine's, or the limit of the tightest control group of this process.
        total: u64,
        /// What that leaves now, caches of files counted as free.
        available: u64,
        /// By this process; pages that processes share count by their share.
        used: u64,
    }
}

/// Local.
///
/// # Errors
/// Only what any call may return, see [`Code`](crate::Code).
pub fn host_memory() -> Result<HostMemory> {
    HostMemory::filled(|raw| unsafe { sys::gw_host_memory(raw) })
}

/// Opens the library; with the feature `dlopen` only. Any other call does it too, and panics if it fails.
#[cfg(feature = "dlopen")]
pub fn load() -> Result<()> {
    sys::load().map_err(|text| crate::Error::new(crate::Code::NotFound, text))
}

/// Belongs to its thread: neither Send nor Sync.
type Hook = Rc<dyn Fn() -> bool>;

/// The interrupt hook of the calling thread: asked at least every 100 ms in every blocking call on it; true
/// (or a panic) ends the call with `Caller`. A collective that waits for itself breaks its gang then; a wait
/// for a work leaves everything as it is. Replaces an earlier hook.
///
/// # Errors
/// Only what any call may return, see [`Code`](crate::Code).
pub fn set_interrupt(check_hook: impl Fn() -> bool + 'static) -> Result<()> {
    let hook: Hook = Rc::new(check_hook);
    let user: *mut c_void = Box::into_raw(Box::new(hook)).cast();
    check(unsafe { sys::gw_interrupt_set(Some(asked), user, Some(free_box::<Hook>)) })
}

/// # Errors
/// Only what any call may return, see [`Code`](crate::Code).
pub fn clear_interrupt() -> Result<()> {
    check(unsafe { sys::gw_interrupt_set(None, std::ptr::null_mut(), None) })
}

unsafe extern "C" fn asked(user: *mut c_void) -> i32 {
    let hook = (*user.cast::<Hook>()).clone(); // it may replace itself
    catch_unwind(AssertUnwindSafe(|| hook())).unwrap_or(true) as i32
}
