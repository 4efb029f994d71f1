//! How ranks meet before they are a gang: stores, and an all-gather of the program's own.
use crate::callback::{free_box, run};
use crate::error::{borrowed_text, made, Error, Result};
use crate::gang::{Gang, GangOptions};
use crate::options::{initialised, path_text};
use gangway_sys as sys;
use std::os::raw::{c_char, c_void};
use std::path::Path;
use std::ptr::NonNull;

/// A caller's own store, see [`Store::custom`]. Called on the thread that makes the gang.
pub trait KeyValue: Send + Sync + 'static {
    /// # Errors
    /// What the store fails by; it ends the start of the gang.
    fn put(&self, key: &str, value: &[u8]) -> Result<()>;
    /// # Errors
    /// What the store fails by; it ends the start of the gang. A key that is not there is no error.
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>>;
    /// # Errors
    /// What the store fails by; it ends the start of the gang.
    fn remove(&self, key: &str) -> Result<()>;
}

/// Where ranks meet before they are a gang. Clones are the same store.
#[derive(Debug)]
pub struct Store(NonNull<sys::gw_store>);

// Counted atomically; what it calls is Send and Sync.
unsafe impl Send for Store {}
unsafe impl Sync for Store {}

impl Clone for Store {
    fn clone(&self) -> Store {
        unsafe { sys::gw_store_retain(self.handle()) };
        Store(self.0)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        unsafe { sys::gw_store_release(self.handle()) }
    }
}

impl Store {
    /// A folder that all ranks of this host see.
    ///
    /// # Errors
    /// - `InvalidArgument`: another user owns the folder or may write into it.
    /// - `Io`: it cannot be made.
    pub fn file(folder: impl AsRef<Path>) -> Result<Store> {
        let folder = path_text(folder.as_ref())?;
        let mut handle = std::ptr::null_mut();
        let status = unsafe { sys::gw_store_create_file(folder.as_ptr(), &mut handle) };
        Ok(Store(made(status, handle)?))
    }

    /// # Errors
    /// Only what any call may return, see [`Code`](crate::Code).
    pub fn custom(store: impl KeyValue) -> Result<Store> {
        let boxed: Box<dyn KeyValue> = Box::new(store);
        let mut raw = initialised!(gw_store_callbacks, gw_store_callbacks_init);
        raw.put = Some(put);
        raw.get = Some(get);
        raw.remove = Some(remove);
        raw.user = Box::into_raw(Box::new(boxed)).cast();
        raw.free_user = Some(free_box::<Box<dyn KeyValue>>);
        let mut handle = std::ptr::null_mut();
        let status = unsafe { sys::gw_store_create_callbacks(&raw, &mut handle) };
        Ok(Store(made(status, handle)?))
    }

    pub(crate) fn handle(&self) -> *mut sys::gw_store {
        self.0.as_ptr()
    }
}

unsafe fn store_of<'a>(user: *mut c_void) -> &'a dyn KeyValue {
    &**user.cast::<Box<dyn KeyValue>>()
}

unsafe extern "C" fn put(
    user: *mut c_void,
    key: *const c_char,
    value: *const c_void,
    size: usize,
) -> sys::gw_status {
    run(|| {
        let value = if size == 0 { &[] } else { std::slice::from_raw_parts(value.cast::<u8>(), size) };
        store_of(user).put(&borrowed_text(key), value)
    })
}

unsafe extern "C" fn get(
    user: *mut c_void,
    key: *const c_char,
    value: *mut c_void,
    capacity: usize,
    out_size: *mut i64,
) -> sys::gw_status {
    run(|| {
        *out_size = -1;
        if let Some(found) = store_of(user).get(&borrowed_text(key))? {
            if !value.is_null() {
                std::ptr::copy_nonoverlapping(found.as_ptr(), value.cast(), found.len().min(capacity));
            }
            *out_size = found.len() as i64;
        }
        Ok(())
    })
}

unsafe extern "C" fn remove(user: *mut c_void, key: *const c_char) -> sys::gw_status {
    run(|| store_of(user).remove(&borrowed_text(key)))
}

impl Gang {
    /// Collective. [`Gang::new`] with a way of the program's own to bring ranks together (MPI, a pipe): options
    /// say `rank` and `size`, and `all_gather` gives every rank's bytes, one after the other, for those of this
    /// rank; all ranks give the same number. Called once.
    ///
    /// # Errors
    /// - What [`Gang::new`] fails by.
    /// - What `all_gather` returns.
    pub fn by_all_gather(
        options: &GangOptions,
        all_gather: impl FnOnce(&[u8], &mut [u8]) -> Result<()> + 'static,
    ) -> Result<Gang> {
        let held = Box::new(OwnGather { all_gather: Some(Box::new(all_gather)), size: options.size });
        let mut handle = std::ptr::null_mut();
        let status = options.with_raw(|raw| {
            let mut raw = unsafe { *raw };
            raw.all_gather = Some(gather_by_own);
            raw.user = Box::into_raw(held).cast();
            raw.free_user = Some(free_box::<OwnGather>);
            unsafe { sys::gw_gang_create(&raw, &mut handle) }
        })?;
        Gang::owned(status, handle)
    }
}

type GatherBytes = Box<dyn FnOnce(&[u8], &mut [u8]) -> Result<()>>;

struct OwnGather {
    all_gather: Option<GatherBytes>,
    size: i32,
}

unsafe extern "C" fn gather_by_own(
    user: *mut c_void,
    input: *const c_void,
    size: usize,
    output: *mut c_void,
) -> sys::gw_status {
    run(|| {
        let own = &mut *user.cast::<OwnGather>();
        let all = size * usize::try_from(own.size).unwrap_or(0);
        let all_gather =
            own.all_gather.take().ok_or_else(|| Error::argument("all_gather is called again"))?;
        let (input, output) = (input.cast::<u8>(), output.cast::<u8>());
        all_gather(std::slice::from_raw_parts(input, size), std::slice::from_raw_parts_mut(output, all))
    })
}
