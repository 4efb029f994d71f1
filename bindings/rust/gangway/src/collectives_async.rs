//! Asynchronous forms of the collectives: buffers go in and come back from the work.
use crate::collectives::{optional_mut, record, Reduce};
use crate::element::Element;
use crate::error::{made, Result};
use crate::gang::{rank_number, Gang};
use crate::memory::Buffer;
use crate::options::Field;
use crate::work::Work;
use gangway_sys as sys;

impl Gang {
    /// # Safety
    /// The record's memory belongs to `owned` and does not move with it.
    pub(crate) unsafe fn start<O: Send + 'static>(
        &self,
        record: sys::gw_collective,
        owned: O,
    ) -> Result<Work<O>> {
        let mut handle = std::ptr::null_mut();
        let status = sys::gw_gang_run(self.raw(), &record, std::ptr::null_mut(), &mut handle);
        Ok(Work::new(made(status, handle)?, owned))
    }

    pub fn barrier_async(&self) -> Result<Work<()>> {
        let (stream, mut handle) = (std::ptr::null_mut(), std::ptr::null_mut());
        let status = unsafe { sys::gw_gang_barrier_async(self.raw(), stream, &mut handle) };
        Ok(Work::new(made(status, handle)?, ()))
    }

    pub fn all_reduce_async<B: Buffer>(&self, mut values: B, reduce: Reduce) -> Result<Work<B>> {
        let slice = values.slice_mut();
        let mut r = record(sys::GW_ALL_REDUCE, slice.as_ptr(), slice.as_mut_ptr(), slice.len());
        r.reduce = reduce.write();
        unsafe { self.start(r, values) }
    }

    /// Adds the reduction of the inputs to `output`.
    pub fn all_reduce_add_async<I, O>(&self, input: I, mut output: O, reduce: Reduce) -> Result<Work<(I, O)>>
    where
        I: Buffer,
        O: Buffer<Item = I::Item>,
    {
        let (from, to) = (input.slice(), output.slice_mut());
        self.expect("all_reduce", "output", to.len(), from.len())?;
        let mut r = record(sys::GW_ALL_REDUCE, from.as_ptr(), to.as_mut_ptr(), from.len());
        r.reduce = reduce.write();
        r.accumulate = 1;
        unsafe { self.start(r, (input, output)) }
    }

    pub fn all_gather_async<I, O>(&self, input: I, mut output: O) -> Result<Work<(I, O)>>
    where
        I: Buffer,
        O: Buffer<Item = I::Item>,
    {
        let (from, to) = (input.slice(), output.slice_mut());
        self.expect("all_gather", "output", to.len(), self.times_size("all_gather", from.len())?)?;
        let r = record(sys::GW_ALL_GATHER, from.as_ptr(), to.as_mut_ptr(), from.len());
        unsafe { self.start(r, (input, output)) }
    }

    /// Into one buffer for each rank.
    pub fn all_gather_list_async<I, O>(&self, input: I, mut outputs: Vec<O>) -> Result<Work<(I, Vec<O>)>>
    where
        I: Buffer,
        O: Buffer<Item = I::Item>,
    {
        let from = input.slice();
        self.expect_list("all_gather_list", outputs.iter().map(|output| output.slice().len()), from.len())?;
        let places = outputs.iter_mut().map(|output| output.slice_mut().as_mut_ptr().cast());
        let places: Vec<*mut std::os::raw::c_void> = places.collect(); // read before the call returns
        let (data, count, dtype) = (from.as_ptr().cast(), from.len(), I::Item::DTYPE.0);
        let (stream, mut handle) = (std::ptr::null_mut(), std::ptr::null_mut());
        let places = places.as_ptr();
        let status = unsafe {
            sys::gw_gang_all_gather_list_async(self.raw(), data, places, count, dtype, stream, &mut handle)
        };
        Ok(Work::new(made(status, handle)?, (input, outputs)))
    }

    /// The sum of all ranks' values.
    pub fn all_sum_async(&self, value: f64) -> Result<Work<f64>> {
        let (mut sum, mut handle) = (Box::new(0.0), std::ptr::null_mut());
        let status = unsafe { sys::gw_gang_all_sum_async(self.raw(), value, &mut *sum, &mut handle) };
        Ok(Work::boxed(made(status, handle)?, sum))
    }

    /// The root's flag on every rank, as 0 or 1.
    pub fn broadcast_flag_async(&self, flag: bool, root: usize) -> Result<Work<i32>> {
        let (mut out, mut handle) = (Box::new(0), std::ptr::null_mut());
        let (flag, root) = (flag as i32, rank_number(root));
        let status =
            unsafe { sys::gw_gang_broadcast_flag_async(self.raw(), flag, root, &mut *out, &mut handle) };
        Ok(Work::boxed(made(status, handle)?, out))
    }

    pub fn reduce_scatter_async<I, O>(&self, input: I, mut output: O, reduce: Reduce) -> Result<Work<(I, O)>>
    where
        I: Buffer,
        O: Buffer<Item = I::Item>,
    {
        let (from, to) = (input.slice(), output.slice_mut());
        self.expect("reduce_scatter", "input", from.len(), self.times_size("reduce_scatter", to.len())?)?;
        let mut r = record(sys::GW_REDUCE_SCATTER, from.as_ptr(), to.as_mut_ptr(), to.len());
        r.reduce = reduce.write();
        unsafe { self.start(r, (input, output)) }
    }

    pub fn broadcast_async<B: Buffer>(&self, mut values: B, root: usize) -> Result<Work<B>> {
        let slice = values.slice_mut();
        let mut r = record(sys::GW_BROADCAST, slice.as_ptr(), slice.as_mut_ptr(), slice.len());
        r.peer = rank_number(root);
        unsafe { self.start(r, values) }
    }

    pub fn reduce_async<I, O>(
        &self,
        input: I,
        mut output: Option<O>,
        reduce: Reduce,
        root: usize,
    ) -> Result<Work<(I, Option<O>)>>
    where
        I: Buffer,
        O: Buffer<Item = I::Item>,
    {
        let (from, to) = (input.slice(), output.as_mut().map(O::slice_mut));
        self.expect_on("reduce", root, "output", to.as_ref().map(|to| to.len()), from.len())?;
        let mut r = record(sys::GW_REDUCE, from.as_ptr(), optional_mut(to), from.len());
        r.reduce = reduce.write();
        r.peer = rank_number(root);
        unsafe { self.start(r, (input, output)) }
    }

    pub fn gather_async<I, O>(
        &self,
        input: I,
        mut output: Option<O>,
        root: usize,
    ) -> Result<Work<(I, Option<O>)>>
    where
        I: Buffer,
        O: Buffer<Item = I::Item>,
    {
        let (from, to) = (input.slice(), output.as_mut().map(O::slice_mut));
        self.expect_on(
            "gather",
            root,
            "output",
            to.as_ref().map(|to| to.len()),
            self.times_size("gather", from.len())?,
        )?;
        let mut r = record(sys::GW_GATHER, from.as_ptr(), optional_mut(to), from.len());
        r.peer = rank_number(root);
        unsafe { self.start(r, (input, output)) }
    }

    pub fn scatter_async<I, O>(
        &self,
        input: Option<I>,
        mut output: O,
        root: usize,
    ) -> Result<Work<(Option<I>, O)>>
    where
        I: Buffer,
        O: Buffer<Item = I::Item>,
    {
        let (from, to) = (input.as_ref().map(I::slice), output.slice_mut());
        self.expect_on(
            "scatter",
            root,
            "input",
            from.map(<[_]>::len),
            self.times_size("scatter", to.len())?,
        )?;
        let from = from.map_or(std::ptr::null(), <[_]>::as_ptr);
        let mut r = record(sys::GW_SCATTER, from, to.as_mut_ptr(), to.len());
        r.peer = rank_number(root);
        unsafe { self.start(r, (input, output)) }
    }

    pub fn all_to_all_async<I, O>(&self, input: I, mut output: O) -> Result<Work<(I, O)>>
    where
        I: Buffer,
        O: Buffer<Item = I::Item>,
    {
        let (from, to) = (input.slice(), output.slice_mut());
        self.expect("all_to_all", "output", to.len(), from.len())?;
        let r = record(
            sys::GW_ALL_TO_ALL,
            from.as_ptr(),
            to.as_mut_ptr(),
            self.part_of("all_to_all", "input", from.len())?,
        );
        unsafe { self.start(r, (input, output)) }
    }

    pub fn send_async<B: Buffer>(&self, input: B, peer: usize) -> Result<Work<B>> {
        let slice = input.slice();
        let mut r = record(sys::GW_SEND, slice.as_ptr(), std::ptr::null_mut(), slice.len());
        r.peer = rank_number(peer);
        unsafe { self.start(r, input) }
    }

    pub fn recv_async<B: Buffer>(&self, mut output: B, peer: usize) -> Result<Work<B>> {
        let slice = output.slice_mut();
        let mut r = record(sys::GW_RECV, std::ptr::null(), slice.as_mut_ptr(), slice.len());
        r.peer = rank_number(peer);
        unsafe { self.start(r, output) }
    }
}
