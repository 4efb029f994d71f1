use crate::{gw_api, gw_status, ABI, GW_E_NOT_SUPPORTED};
use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::mem::size_of;
use std::os::raw::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

#[link(name = "dl")]
extern "C" {
    fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlerror() -> *const c_char;
    fn secure_getenv(name: *const c_char) -> *const c_char;
}

const RTLD_NOW: c_int = 2;

/// Of this side's size, whatever the library's: null is what the library does not have.
static TABLE: AtomicPtr<gw_api> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    // Clippy of Debian 12 takes the macro's own constant for ours.
    #[allow(clippy::declare_interior_mutable_const)]
    static LACKING: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Opens the library (GANGWAY_LIBRARY, else [`LIBRARY`](crate::LIBRARY) by the loader's own search) and looks up
/// `gw_get_api`. Further calls do nothing. A function that is called before does this by itself, and panics
/// with the text if it fails.
///
/// A library whose table is shorter than these bindings' is taken: a function that it has not returns
/// `GW_E_NOT_SUPPORTED`, and [`lacking`] says which; one that returns no status panics.
pub fn load() -> Result<(), String> {
    if !TABLE.load(Ordering::Acquire).is_null() {
        return Ok(());
    }
    let table = unsafe { get_api(ABI.1)? };
    if table.is_null() {
        return Err(format!(
            "this libgangway is older than its bindings: it has no ABI level {}.{}",
            ABI.0, ABI.1
        ));
    }
    let table = unsafe { own_table(table)? };
    if let Some(text) = crate::refusal(release_of(&table), (table.abi_major, table.abi_minor)) {
        return Err(text);
    }
    let table = Box::into_raw(Box::new(table));
    if TABLE.compare_exchange(std::ptr::null_mut(), table, Ordering::AcqRel, Ordering::Acquire).is_err() {
        drop(unsafe { Box::from_raw(table) }); // another thread was first
    }
    Ok(())
}

/// The table's size and level come before its functions.
const HEAD: usize = size_of::<usize>() + 2 * size_of::<i32>();

/// As much of the library's table as it has, and the rest null.
unsafe fn own_table(found: *const gw_api) -> Result<gw_api, String> {
    let size = (*found).struct_size;
    if size < HEAD {
        return Err(format!("this libgangway's table has {size} bytes, less than the {HEAD} of its head"));
    }
    let functions = (size.min(size_of::<gw_api>()) - HEAD) / size_of::<usize>();
    let bytes = HEAD + functions * size_of::<usize>();
    let mut table = std::mem::MaybeUninit::<gw_api>::zeroed();
    std::ptr::copy_nonoverlapping(found.cast::<u8>(), table.as_mut_ptr().cast::<u8>(), bytes);
    Ok(table.assume_init())
}

fn release_of(table: &gw_api) -> (i32, i32, i32) {
    let (mut major, mut minor, mut patch) = (-1, -1, -1);
    if let Some(version) = table.version {
        unsafe { version(&mut major, &mut minor, &mut patch) };
    }
    (major, minor, patch)
}

unsafe fn get_api(abi_minor: i32) -> Result<*const gw_api, String> {
    // Null in a program with rights that its user does not have (setuid): the variable names code to load.
    let named = secure_getenv(b"GANGWAY_LIBRARY\0".as_ptr().cast());
    let name = match named.is_null() {
        true => CString::new(crate::LIBRARY).map_err(|e| e.to_string())?,
        false => CStr::from_ptr(named).to_owned(),
    };
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

/// What a function is to a library that has not got it.
#[cold]
pub(crate) fn refuse(name: &'static str) -> gw_status {
    LACKING.with(|lacking| lacking.set(Some(name)));
    GW_E_NOT_SUPPORTED
}

/// The same for a function that returns no status.
#[cold]
pub(crate) fn lacks(name: &str) -> ! {
    panic!("{}", lacks_text(name))
}

fn lacks_text(name: &str) -> String {
    let (has, known) = (table().struct_size, size_of::<gw_api>());
    format!(
        "this libgangway is older than its bindings: it has no {name} (a table of {has} bytes, not {known})"
    )
}

/// Why this thread's last call of a function that the library has not got was `GW_E_NOT_SUPPORTED`; told once.
pub fn lacking() -> Option<String> {
    LACKING.with(Cell::take).map(lacks_text)
}
