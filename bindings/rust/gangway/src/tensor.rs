use crate::array::AsView;
use crate::error::{check, made, Result};
use crate::view::{raw_view, Name, View};
use gangway_sys as sys;
use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;

/// A tensor of the library's, immutable and shared by its clones.
pub struct Tensor {
    handle: NonNull<sys::gw_tensor>,
}

// Immutable, counted atomically.
unsafe impl Send for Tensor {}
unsafe impl Sync for Tensor {}

impl Tensor {
    /// A row-major copy of the elements.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn copy(view: &impl AsView) -> Result<Tensor> {
        let view = view.as_view();
        let mut handle = std::ptr::null_mut();
        let status = unsafe { sys::gw_tensor_copy(&raw_view(&view), &mut handle) };
        Ok(Tensor { handle: made(status, handle)? })
    }

    /// A copy in memory of the host, where Rust can read it. Waits for the work that the device has.
    ///
    /// # Errors
    /// - `InvalidArgument`: a strided tensor of another device, or a tensor of the meta device.
    /// - `OutOfMemory`.
    pub fn to_host(&self) -> Result<Tensor> {
        let mut handle = std::ptr::null_mut();
        let status =
            unsafe { sys::gw_tensor_to_host(self.handle.as_ptr(), std::ptr::null_mut(), &mut handle) };
        Tensor::owned(status, handle)
    }

    /// Later work on `stream` (a cudaStream_t; null: the device's own) comes after all that the library has put on the
    /// tensor's device by now. `InvalidArgument`: a stream on a CPU.
    ///
    /// # Safety
    /// `stream` is null, or a living stream of the tensor's device.
    ///
    /// # Errors
    /// `InvalidArgument`: a stream on a CPU.
    pub unsafe fn order(&self, stream: *mut c_void) -> Result<()> {
        check(sys::gw_tensor_order(self.handle.as_ptr(), stream))
    }

    pub(crate) fn owned(status: sys::gw_status, handle: *mut sys::gw_tensor) -> Result<Tensor> {
        Ok(Tensor { handle: made(status, handle)? })
    }

    pub(crate) fn from_handle(handle: *mut sys::gw_tensor) -> Option<Tensor> {
        NonNull::new(handle).map(|handle| Tensor { handle })
    }

    /// Takes over a DLPack tensor, on success only.
    ///
    /// # Safety
    /// `managed` is a valid `DLManagedTensorVersioned` that nothing else owns or writes, and its deleter may
    /// run on any thread.
    ///
    /// # Errors
    /// - `NotSupported`: a major version other than 1, or lanes other than 1.
    /// - `InvalidArgument` names another field: a device other than the CPU, more than 8 dims, or null data.
    pub unsafe fn from_dlpack(managed: *mut sys::DLManagedTensorVersioned) -> Result<Tensor> {
        let mut handle = std::ptr::null_mut();
        Tensor::owned(sys::gw_tensor_from_dlpack(managed, &mut handle), handle)
    }

    /// It must not be written: memory of a shared region, or a DLPack tensor that came so.
    pub fn is_read_only(&self) -> bool {
        unsafe { sys::gw_tensor_is_read_only(self.handle.as_ptr()) == 1 }
    }

    /// An export that holds a reference on the memory until its deleter is called.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn to_dlpack(&self) -> Result<NonNull<sys::DLManagedTensorVersioned>> {
        let mut managed = std::ptr::null_mut();
        made(unsafe { sys::gw_tensor_to_dlpack(self.handle.as_ptr(), &mut managed) }, managed)
    }
}

impl AsView for Tensor {
    /// ```compile_fail,E0505
    /// use gangway::{AsView, Tensor, View};
    /// let tensor = Tensor::copy(&View::new(&[1f32], &[1]).unwrap()).unwrap();
    /// let view = tensor.as_view();
    /// drop(tensor); // borrowed by the view
    /// println!("{view:?}");
    /// ```
    fn as_view(&self) -> View<'_> {
        let mut raw = sys::gw_view::default();
        let status = unsafe { sys::gw_tensor_view(self.handle.as_ptr(), &mut raw) };
        check(status).expect("a tensor has a view");
        unsafe { View::from_raw(&raw, Name("tensor", None)) }
    }
}

impl Clone for Tensor {
    fn clone(&self) -> Tensor {
        unsafe { sys::gw_tensor_retain(self.handle.as_ptr()) };
        Tensor { handle: self.handle }
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        unsafe { sys::gw_tensor_release(self.handle.as_ptr()) }
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_view().fmt(f)
    }
}
