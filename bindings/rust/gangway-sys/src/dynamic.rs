use crate::gw_api;
use std::ffi::{CStr, CString};
use std::os::raw::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

#[link(name = "dl")]
extern "C" {
    fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlerror() -> *const c_char;
}

const RTLD_NOW: c_int = 2;
const ABI_MINOR: i32 = 0; // the lowest level that these bindings use

static TABLE: AtomicPtr<gw_api> = AtomicPtr::new(std::ptr::null_mut());

/// Opens the library (GANGWAY_LIBRARY, else `libgangway.so.1` by the loader's own search) and looks up
/// `gw_get_api`. Further calls do nothing. A function that is called before does this by itself, and panics
/// with the text if it fails.
pub fn load() -> Result<(), String> {
    if !TABLE.load(Ordering::Acquire).is_null() {
        return Ok(());
    }
    let table = unsafe { get_api(ABI_MINOR)? };
    if table.is_null() {
        return Err(format!("this libgangway has no ABI level 0.{ABI_MINOR}"));
    }
    let size = unsafe { (*table).struct_size };
    if size < std::mem::size_of::<gw_api>() {
        return Err(format!("this libgangway is older than its bindings (its table has {size} bytes)"));
    }
    TABLE.store(table as *mut gw_api, Ordering::Release);
    Ok(())
}

unsafe fn get_api(abi_minor: i32) -> Result<*const gw_api, String> {
    let name = std::env::var("GANGWAY_LIBRARY").unwrap_or_else(|_| "libgangway.so.1".into());
    let name = CString::new(name).map_err(|_| "GANGWAY_LIBRARY holds a zero byte".to_owned())?;
    let handle = dlopen(name.as_ptr(), RTLD_NOW); // never closed: the library stays loaded by itself
    let found = match handle.is_null() {
        true => handle,
        false => dlsym(handle, b"gw_get_api\0".as_ptr().cast()),
    };
    if found.is_null() {
        return Err(CStr::from_ptr(dlerror()).to_string_lossy().into_owned());
    }
    let function: unsafe extern "C" fn(i32) -> *const gw_api = std::mem::transmute(found);
    Ok(function(abi_minor))
}

/// The table of an ABI level; null for a level that the library does not know.
/// # Safety
/// The table lives as long as the process.
pub unsafe fn gw_get_api(abi_minor: i32) -> *const gw_api {
    get_api(abi_minor).unwrap_or(std::ptr::null())
}

#[inline]
pub(crate) fn table() -> &'static gw_api {
    let table = TABLE.load(Ordering::Acquire);
    if table.is_null() {
        return first_use();
    }
    unsafe { &*table }
}

#[cold]
fn first_use() -> &'static gw_api {
    if let Err(text) = load() {
        panic!("libgangway cannot be loaded: {text}");
    }
    unsafe { &*TABLE.load(Ordering::Acquire) }
}

#[cold]
pub(crate) fn lacks(name: &str) -> ! {
    panic!("this libgangway has no {name}")
}
