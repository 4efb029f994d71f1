use crate::element::{DType, Element};
use crate::error::{check, Code, Error, Result};
use crate::gang::Gang;
use crate::tensor::Tensor;
use gangway_sys as sys;
use std::fmt;
use std::ops::{Deref, DerefMut};

/// Memory of a gang, which peers reach directly, so that collectives need no staging copy. Zero at first. May
/// be dropped in any order, on any thread.
pub struct GangMemory<T: Element> {
    data: *mut T,
    len: usize,
}

// Owns its elements, like a Vec.
unsafe impl<T: Element> Send for GangMemory<T> {}
unsafe impl<T: Element> Sync for GangMemory<T> {}

fn bytes_of<T>(len: usize) -> Result<usize> {
    let bytes = len.checked_mul(std::mem::size_of::<T>());
    bytes.ok_or_else(|| Error::argument(format!("{len} elements are too many")))
}

impl Gang {
    /// Local. NOT_SUPPORTED: the gang's memory is a GPU's, which no slice may show.
    ///
    /// # Errors
    /// - `NotSupported`: the gang's memory is a GPU's, which no slice may show.
    /// - `OutOfMemory`: the text has the wanted and the available number of bytes.
    pub fn alloc<T: Element>(&self, len: usize) -> Result<GangMemory<T>> {
        let mut data = std::ptr::null_mut();
        let bytes = bytes_of::<T>(len)?;
        let device = self.device();
        if device != "cpu" {
            let text = format!("alloc: the gang's memory is of {device}, where Rust cannot read it");
            return Err(Error::new(Code::NotSupported, text));
        }
        check(unsafe { sys::gw_gang_alloc(self.raw(), bytes.max(1), &mut data) })?;
        let data: *mut T = data.cast();
        unsafe { std::ptr::write_bytes(data, 0, len) }; // it may have been used before
        Ok(GangMemory { data, len })
    }

    /// Local. A tensor in the gang's memory, also of a GPU; on a CPU its elements are 0, on a GPU undefined.
    ///
    /// # Errors
    /// - `InvalidArgument`: more than 8 dims, a dim below 0, or a dtype that cannot be moved.
    /// - `OutOfMemory`: the text has the wanted and the available number of bytes.
    pub fn alloc_tensor(&self, shape: &[i64], dtype: DType) -> Result<Tensor> {
        let mut handle = std::ptr::null_mut();
        let ndim = i32::try_from(shape.len()).unwrap_or(i32::MAX);
        let status =
            unsafe { sys::gw_gang_alloc_tensor(self.raw(), shape.as_ptr(), ndim, dtype.0, &mut handle) };
        let tensor = Tensor::owned(status, handle)?;
        let mut view = sys::gw_view::default();
        check(unsafe { sys::gw_tensor_view(handle, &mut view) })?;
        if view.device_type == sys::GW_DEVICE_CPU && !view.data.is_null() {
            let bytes = shape.iter().product::<i64>() as usize * dtype.bytes();
            unsafe { std::ptr::write_bytes(view.data.cast::<u8>(), 0, bytes) }; // it may have been used before
        }
        Ok(tensor)
    }

    /// Collective. One zeroed region that all ranks map.
    ///
    /// # Errors
    /// - `NotSupported`: the ranks are on several hosts.
    /// - `Mismatch`: ranks asked for different numbers of elements.
    /// - `OutOfMemory`: the text has the wanted and the available number of bytes.
    pub fn alloc_shared<T: Element>(&self, len: usize) -> Result<SharedMemory<T>> {
        let mut data = std::ptr::null_mut();
        let bytes = bytes_of::<T>(len)?;
        check(unsafe { sys::gw_gang_alloc_shared(self.raw(), bytes.max(1), &mut data) })?;
        Ok(SharedMemory { data: data.cast(), len })
    }
}

impl<T: Element> Deref for GangMemory<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        unsafe { std::slice::from_raw_parts(self.data, self.len) }
    }
}

impl<T: Element> DerefMut for GangMemory<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        unsafe { std::slice::from_raw_parts_mut(self.data, self.len) }
    }
}

impl<T: Element> Drop for GangMemory<T> {
    fn drop(&mut self) {
        unsafe { sys::gw_gang_free(std::ptr::null_mut(), self.data.cast()) };
    }
}

impl<T: Element + fmt::Debug> fmt::Debug for GangMemory<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// Memory that all ranks of a host map. Peers write it whenever they like, so the program orders the accesses
/// (a barrier, atomics) and says so by `unsafe`.
pub struct SharedMemory<T: Element> {
    data: *mut T,
    len: usize,
}

unsafe impl<T: Element> Send for SharedMemory<T> {}
unsafe impl<T: Element> Sync for SharedMemory<T> {}

// Peers may write the elements meanwhile, so they are not read.
impl<T: Element> fmt::Debug for SharedMemory<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} elements of {} at {:?}", self.len, T::DTYPE, self.data)
    }
}

impl<T: Element> SharedMemory<T> {
    pub fn as_ptr(&self) -> *mut T {
        self.data
    }

    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// # Safety
    /// No rank writes the region while the slice lives.
    pub unsafe fn slice(&self) -> &[T] {
        std::slice::from_raw_parts(self.data, self.len)
    }

    /// # Safety
    /// No other rank, and no other code of this one, reads or writes the region while the slice lives.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn slice_mut(&self) -> &mut [T] {
        std::slice::from_raw_parts_mut(self.data, self.len)
    }
}

impl<T: Element> Drop for SharedMemory<T> {
    fn drop(&mut self) {
        unsafe { sys::gw_gang_free(std::ptr::null_mut(), self.data.cast()) };
    }
}
