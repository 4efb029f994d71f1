use crate::error::{check, made, Result};
use crate::module::Module;
use crate::options::options;
use gangway_sys as sys;
use std::ptr::NonNull;

options! {
    #[derive(Copy)]
    FrameOptions = gw_frame_options, gw_frame_options_init {
        /// The value from which the backward of a loss starts: for a mean over N items the optimizer's loss
        /// scale (1 where it has none) / N.
        loss_scale: f64,
        step: i64,
        microbatch: i32,
        /// Over cp: inputs and outputs are this rank's parts of the sequences, not whole ones.
        sequence_parts: bool,
    }
}

/// The activations of one forward, kept for its backward.
#[derive(Debug)]
pub struct Frame {
    handle: NonNull<sys::gw_frame>,
}

unsafe impl Send for Frame {}

impl Frame {
    /// Local. The model must be materialized.
    ///
    /// # Errors
    /// `InvalidState`: the model has no memory yet.
    pub fn new(model: &Module, options: &FrameOptions) -> Result<Frame> {
        let mut handle = std::ptr::null_mut();
        let status = unsafe { sys::gw_frame_create(model.raw(), &options.raw(), &mut handle) };
        Ok(Frame { handle: made(status, handle)? })
    }

    /// Forgets what was saved.
    ///
    /// # Errors
    /// Only what any call may return, see [`Code`](crate::Code).
    pub fn reset(&mut self) -> Result<()> {
        check(unsafe { sys::gw_frame_reset(self.raw()) })
    }

    pub(crate) fn raw(&self) -> *mut sys::gw_frame {
        self.handle.as_ptr()
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        unsafe { sys::gw_frame_release(self.raw()) }
    }
}
