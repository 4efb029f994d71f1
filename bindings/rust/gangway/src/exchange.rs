//! Several sends and receives in one call, and a probe for messages that have arrived.
use crate::collective::record;
use crate::element::{DType, Element};
use crate::error::{check, Result};
use crate::gang::{rank_number, Gang};
use gangway_sys as sys;
use std::fmt;
use std::marker::PhantomData;

impl Gang {
    /// Local, never waits. The number and type of the elements of the next message from `peer` that no
    /// receive has asked for; None: none has come yet.
    ///
    /// # Errors
    /// - `InvalidArgument`: a peer outside of the gang.
    /// - `NotSupported`: engines fake, mpi and nccl.
    /// - With a broken gang its first error.
    pub fn probe(&self, peer: usize) -> Result<Option<(usize, DType)>> {
        let (mut ready, mut count, mut dtype) = (0, 0, 0);
        check(unsafe {
            sys::gw_gang_probe(self.raw(), rank_number(peer), &mut ready, &mut count, &mut dtype)
        })?;
        Ok((ready == 1).then_some((count, DType(dtype))))
    }

    /// Sends and receives that run together, so that two ranks may both send first without a deadlock.
    pub fn exchange(&self) -> Exchange<'_> {
        Exchange { gang: self, records: Vec::new(), borrowed: PhantomData }
    }
}

/// Sends and receives that run together, see [`Gang::exchange`].
#[must_use = "nothing moves before run()"]
pub struct Exchange<'a> {
    gang: &'a Gang,
    records: Vec<sys::gw_collective>,
    borrowed: PhantomData<&'a mut [u8]>,
}

impl fmt::Debug for Exchange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Exchange");
        shown.field("gang", self.gang).field("messages", &self.records.len()).finish_non_exhaustive()
    }
}

impl<'a> Exchange<'a> {
    /// Adds a send; `peer` receives as many elements of the same type.
    pub fn send<T: Element>(mut self, input: &'a [T], peer: usize) -> Self {
        let mut r = record(sys::GW_SEND, input.as_ptr(), std::ptr::null_mut(), input.len());
        r.peer = rank_number(peer);
        self.records.push(r);
        self
    }

    /// Adds a receive; `peer` sends as many elements of the same type.
    pub fn recv<T: Element>(mut self, output: &'a mut [T], peer: usize) -> Self {
        let mut r = record(sys::GW_RECV, std::ptr::null(), output.as_mut_ptr(), output.len());
        r.peer = rank_number(peer);
        self.records.push(r);
        self
    }

    /// Waits until all of them are done.
    ///
    /// # Errors
    /// As [`Collective::run`](crate::Collective::run).
    pub fn run(self) -> Result<()> {
        let (records, count) = (self.records.as_ptr(), self.records.len());
        let (stream, work) = (std::ptr::null_mut(), std::ptr::null_mut());
        check(unsafe { sys::gw_gang_run_batch(self.gang.raw(), records, count, stream, work) })
    }
}
