//! An all-gather whose output is a list of buffers. The library has no record for it.
use crate::buffer::{Buffer, BufferMut};
use crate::element::Element;
use crate::error::{check, made, Result};
use crate::gang::Gang;
use crate::work::Work;
use gangway_sys as sys;
use std::fmt;
use std::os::raw::c_void;

impl Gang {
    /// Into one buffer for each rank, each as long as `input`: `&mut lists`, `values.chunks_mut(n)` or
    /// buffers by value.
    pub fn all_gather_list<I, O>(
        &self,
        input: I,
        outputs: impl IntoIterator<Item = O>,
    ) -> AllGatherList<'_, I, O>
    where
        I: Buffer,
        O: BufferMut<Item = I::Item>,
    {
        AllGatherList { gang: self, input, outputs: outputs.into_iter().collect() }
    }
}

/// An all-gather into one buffer for each rank, which has not begun; see [`Gang::all_gather_list`].
#[must_use = "nothing moves before run() or start()"]
pub struct AllGatherList<'a, I, O> {
    gang: &'a Gang,
    input: I,
    outputs: Vec<O>,
}

// Buffers are long, so their number stands for them.
impl<I, O> fmt::Debug for AllGatherList<'_, I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("AllGatherList");
        shown.field("gang", self.gang).field("outputs", &self.outputs.len()).finish_non_exhaustive()
    }
}

impl<I: Buffer, O: BufferMut<Item = I::Item>> AllGatherList<'_, I, O> {
    /// Waits until the outputs are ready. Buffers that came by value are dropped.
    ///
    /// # Errors
    /// As [`Collective::run`](crate::Collective::run).
    pub fn run(mut self) -> Result<()> {
        let (gang, places, input) = (self.gang.raw(), self.places()?, self.input.slice());
        let (from, count, dtype) = (input.as_ptr().cast(), input.len(), I::Item::DTYPE.0);
        let stream = std::ptr::null_mut();
        check(unsafe { sys::gw_gang_all_gather_list(gang, from, places.as_ptr(), count, dtype, stream) })
    }

    /// Starts it and returns; the work gives the buffers back.
    ///
    /// # Errors
    /// As [`Collective::start`](crate::Collective::start).
    pub fn start(mut self) -> Result<Work<(I, Vec<O>)>>
    where
        I: Send + 'static,
        O: Send + 'static,
    {
        let (gang, places, input) = (self.gang.raw(), self.places()?, self.input.slice());
        let (from, count, dtype) = (input.as_ptr().cast(), input.len(), I::Item::DTYPE.0);
        let (to, stream, mut handle) = (places.as_ptr(), std::ptr::null_mut(), std::ptr::null_mut());
        // The library reads the list of places before the call returns.
        let status =
            unsafe { sys::gw_gang_all_gather_list_async(gang, from, to, count, dtype, stream, &mut handle) };
        Ok(Work::new(made(status, handle)?, (self.input, self.outputs)))
    }

    /// Where the outputs are: one for each rank, each as long as the input.
    fn places(&mut self) -> Result<Vec<*mut c_void>> {
        const CALL: &str = "all_gather_list";
        let (gang, expected) = (self.gang, self.input.slice().len());
        if self.outputs.len() != gang.size() {
            return Err(gang.wrong_length(CALL, "outputs", self.outputs.len(), gang.size()));
        }
        let place = |(i, output): (usize, &mut O)| match output.slice_mut() {
            to if to.len() == expected => Ok(to.as_mut_ptr().cast()),
            to => Err(gang.wrong_length(CALL, &format!("outputs[{i}]"), to.len(), expected)),
        };
        self.outputs.iter_mut().enumerate().map(place).collect()
    }
}
