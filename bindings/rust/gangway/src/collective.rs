//! One collective as a builder over the library's record.
mod lengths;

use crate::buffer::{Buffer, BufferMut};
use crate::element::{DType, Element};
use crate::error::{check, made, Result};
use crate::gang::{rank_number, Gang};
use crate::options::initialised;
use crate::work::Work;
use gangway_sys as sys;
use std::fmt;

pub(crate) fn record<T: Element>(
    op: sys::gw_op,
    input: *const T,
    output: *mut T,
    count: usize,
) -> sys::gw_collective {
    let mut record = initialised!(gw_collective, gw_collective_init);
    record.op = op;
    record.input = input.cast();
    record.output = output.cast();
    record.count = count;
    record.dtype = T::DTYPE.0;
    record
}

/// Where the elements of a buffer are. It borrows nothing, because the buffer moves into the builder.
#[derive(Clone, Copy)]
pub(crate) struct Place<T> {
    data: *mut T,
    /// None: this rank has no such buffer.
    len: Option<usize>,
}

impl<T> Place<T> {
    pub(crate) const NONE: Place<T> = Place { data: std::ptr::null_mut(), len: None };

    #[inline]
    pub(crate) fn read<B: Buffer<Item = T>>(buffer: &B) -> Place<T> {
        let slice = buffer.slice();
        Place { data: slice.as_ptr() as *mut T, len: Some(slice.len()) }
    }

    #[inline]
    pub(crate) fn write<B: BufferMut<Item = T>>(buffer: &mut B) -> Place<T> {
        let slice = buffer.slice_mut();
        Place { data: slice.as_mut_ptr(), len: Some(slice.len()) }
    }
}

/// A collective that has not begun: [`run`](Collective::run) waits for it, [`start`](Collective::start) gives
/// a [`Work`]. Every rank of the gang calls the same one.
///
/// ```no_run
/// # use gangway::{Gang, Reduce};
/// # fn main() -> gangway::Result<()> {
/// # let gang = Gang::new(&Default::default())?;
/// let mut sums = [1f32; 8];
/// gang.all_reduce(&mut sums, Reduce::Sum).run()?; // borrows until it is done
/// let work = gang.all_reduce(vec![1f32; 8], Reduce::Sum).start()?; // owns its buffer meanwhile
/// let sums = work.wait()?;
/// # drop(sums); Ok(()) }
/// ```
#[must_use = "nothing moves before run() or start()"]
pub struct Collective<'a, B> {
    gang: &'a Gang,
    record: sys::gw_collective,
    /// Lengths; None: this rank has no such buffer.
    input: Option<usize>,
    output: Option<usize>,
    element_bytes: usize,
    counts: Option<&'a [usize]>,
    recv_counts: Option<&'a [usize]>,
    /// Both lists of an all_to_all, one after the other, as the record wants them.
    joined: Vec<usize>,
    buffers: B,
}

// Buffers are long, so their lengths stand for them.
impl<B> fmt::Debug for Collective<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Collective");
        shown.field("gang", self.gang).field("op", &self.record.op).field("dtype", &DType(self.record.dtype));
        shown.field("input", &self.input).field("output", &self.output);
        shown.field("counts", &self.counts).field("recv_counts", &self.recv_counts).finish_non_exhaustive()
    }
}

impl<'a, B> Collective<'a, B> {
    /// `buffers` owns or borrows what `input` and `output` point at.
    #[inline]
    pub(crate) fn new<T: Element>(
        gang: &'a Gang,
        op: sys::gw_op,
        input: Place<T>,
        output: Place<T>,
        buffers: B,
    ) -> Self {
        Collective {
            gang,
            record: record(op, input.data, output.data, 0),
            input: input.len,
            output: output.len,
            element_bytes: std::mem::size_of::<T>(),
            counts: None,
            recv_counts: None,
            joined: Vec::new(),
            buffers,
        }
    }

    #[inline]
    pub(crate) fn reduce(mut self, reduce: sys::gw_reduce) -> Self {
        self.record.reduce = reduce;
        self
    }

    /// The root, or the other end of a send or receive.
    #[inline]
    pub(crate) fn peer(mut self, rank: usize) -> Self {
        self.record.peer = rank_number(rank);
        self
    }

    /// Gives every rank a part of its own length: `counts[r]` elements belong to rank r. all_gather,
    /// reduce_scatter, gather and scatter need the same list on every rank. In all_to_all this rank sends
    /// `counts[r]` elements to rank r; it receives as many from there unless
    /// [`recv_counts`](Collective::recv_counts) says otherwise.
    pub fn counts(mut self, counts: &'a [usize]) -> Self {
        self.counts = Some(counts);
        self
    }

    /// Only for an all_to_all with [`counts`](Collective::counts): `counts[r]` elements come from rank r.
    pub fn recv_counts(mut self, counts: &'a [usize]) -> Self {
        self.recv_counts = Some(counts);
        self
    }

    /// Adds the result to the output. Only all_reduce, reduce_scatter and reduce of floating types take it.
    pub fn accumulate(mut self) -> Self {
        self.record.accumulate = 1;
        self
    }

    /// Waits until the output is ready. Buffers that came by value are dropped; the work of
    /// [`start`](Collective::start) gives them back.
    ///
    /// # Errors
    /// - `InvalidArgument`: lengths, counts, rank or type do not fit. Nothing has begun, and the gang is not
    ///   broken.
    /// - `InvalidState`: the gang was shut down.
    /// - `Mismatch`, `PeerLost`, `Timeout`, `Aborted`, `Caller`, `Gang`: the gang is broken, and the outputs
    ///   are undefined.
    #[inline]
    pub fn run(mut self) -> Result<()> {
        self.complete()?;
        let (gang, r, stream) = (self.gang.raw(), &self.record, std::ptr::null_mut());
        // These two functions of the library read no record, which makes small calls cheaper.
        check(match r.op {
            sys::GW_BARRIER => unsafe { sys::gw_gang_barrier(gang, stream) },
            sys::GW_ALL_REDUCE if r.accumulate == 0 => unsafe {
                sys::gw_gang_all_reduce(gang, r.input, r.output, r.count, r.dtype, r.reduce, stream)
            },
            _ => unsafe { sys::gw_gang_run(gang, r, stream, std::ptr::null_mut()) },
        })
    }

    /// Starts it and returns. The work owns the buffers until it is done, so they come by value:
    ///
    /// ```compile_fail,E0597
    /// # fn main() -> gangway::Result<()> {
    /// # let gang = gangway::Gang::new(&Default::default())?;
    /// let work = {
    ///     let mut values = vec![1f32; 8];
    ///     gang.all_reduce(&mut values, gangway::Reduce::Sum).start()? // the work outlives the borrow
    /// };
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`run`](Collective::run), where the call is refused or the gang is broken already; the buffers are
    /// dropped then. The work returns a later failure.
    pub fn start(mut self) -> Result<Work<B>>
    where
        B: Send + 'static,
    {
        self.complete()?;
        let mut handle = std::ptr::null_mut();
        let status =
            unsafe { sys::gw_gang_run(self.gang.raw(), &self.record, std::ptr::null_mut(), &mut handle) };
        Ok(Work::new(made(status, handle)?, self.buffers))
    }
}
