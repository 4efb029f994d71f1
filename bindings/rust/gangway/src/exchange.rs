//! What goes from rank to rank, and bytes whose number only their sender knows.
use crate::collectives::record;
use crate::element::{DType, Element};
use crate::error::{check, made, Result};
use crate::gang::{rank_number, Gang};
use gangway_sys as sys;
use std::marker::PhantomData;

impl Gang {
    pub fn send<T: Element>(&self, input: &[T], peer: usize) -> Result<()> {
        self.exchange().send(input, peer).run()
    }

    pub fn recv<T: Element>(&self, output: &mut [T], peer: usize) -> Result<()> {
        self.exchange().recv(output, peer).run()
    }

    /// The number and type of the elements of the next message from `peer` that no receive has asked for; nothing: none has
    /// come yet. Local, never waits.
    pub fn probe(&self, peer: usize) -> Result<Option<(usize, DType)>> {
        let (mut ready, mut count, mut dtype) = (0, 0, 0);
        check(unsafe { sys::gw_gang_probe(self.raw(), rank_number(peer), &mut ready, &mut count, &mut dtype) })?;
        Ok((ready == 1).then_some((count, DType(dtype))))
    }

    /// Sends and receives that run together, so that they cannot deadlock.
    pub fn exchange(&self) -> Exchange<'_> {
        Exchange { gang: self, records: Vec::new(), borrowed: PhantomData }
    }

    /// The root's bytes on every rank; elsewhere `bytes` is not read.
    pub fn broadcast_bytes(&self, bytes: &[u8], root: usize) -> Result<Vec<u8>> {
        let (data, mut out) = (bytes.as_ptr().cast(), std::ptr::null_mut());
        let root = rank_number(root);
        let status = unsafe { sys::gw_gang_broadcast_bytes(self.raw(), data, bytes.len(), root, &mut out) };
        Ok(Bytes(made(status, out)?).to_vec())
    }

    /// Every rank's bytes.
    pub fn all_gather_bytes(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let mut sizes = vec![0usize; self.size()];
        let (data, mut out) = (bytes.as_ptr().cast(), std::ptr::null_mut());
        let places = sizes.as_mut_ptr();
        let status =
            unsafe { sys::gw_gang_all_gather_bytes(self.raw(), data, bytes.len(), places, &mut out) };
        let all = Bytes(made(status, out)?).to_vec();
        let mut rest = all.as_slice();
        Ok(sizes
            .into_iter()
            .map(|size| {
                let (one, others) = rest.split_at(size);
                rest = others;
                one.to_vec()
            })
            .collect())
    }
}

/// Sends and receives of one launch, see [`Gang::exchange`].
#[must_use = "nothing moves before run()"]
pub struct Exchange<'a> {
    gang: &'a Gang,
    records: Vec<sys::gw_collective>,
    borrowed: PhantomData<&'a mut [u8]>,
}

impl<'a> Exchange<'a> {
    pub fn send<T: Element>(mut self, input: &'a [T], peer: usize) -> Self {
        let mut r = record(sys::GW_SEND, input.as_ptr(), std::ptr::null_mut(), input.len());
        r.peer = rank_number(peer);
        self.records.push(r);
        self
    }

    pub fn recv<T: Element>(mut self, output: &'a mut [T], peer: usize) -> Self {
        let mut r = record(sys::GW_RECV, std::ptr::null(), output.as_mut_ptr(), output.len());
        r.peer = rank_number(peer);
        self.records.push(r);
        self
    }

    pub fn run(self) -> Result<()> {
        let (records, count) = (self.records.as_ptr(), self.records.len());
        let (stream, work) = (std::ptr::null_mut(), std::ptr::null_mut());
        check(unsafe { sys::gw_gang_run_batch(self.gang.raw(), records, count, stream, work) })
    }
}

/// Bytes of the library's.
struct Bytes(std::ptr::NonNull<sys::gw_bytes>);

impl Bytes {
    fn to_vec(&self) -> Vec<u8> {
        let bytes = self.0.as_ptr();
        match unsafe { sys::gw_bytes_size(bytes) } {
            0 => Vec::new(),
            size => unsafe { std::slice::from_raw_parts(sys::gw_bytes_data(bytes).cast(), size) }.to_vec(),
        }
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        unsafe { sys::gw_bytes_release(self.0.as_ptr()) }
    }
}
