//! Collectives of a number, a flag or bytes: plain calls that return it. Bytes have no asynchronous form,
//! because the second half begins only when their number is known.
use crate::error::{check, made, Result};
use crate::gang::{rank_number, Gang};
use crate::work::Work;
use gangway_sys as sys;

impl Gang {
    /// Collective. The sum of all ranks' values.
    ///
    /// # Errors
    /// As [`Collective::run`](crate::Collective::run).
    pub fn all_sum(&self, value: f64) -> Result<f64> {
        let mut sum = 0.0;
        check(unsafe { sys::gw_gang_all_sum(self.raw(), value, &mut sum) })?;
        Ok(sum)
    }

    /// Collective. [`all_sum`](Gang::all_sum) as a work.
    ///
    /// # Errors
    /// As [`Collective::start`](crate::Collective::start).
    pub fn all_sum_async(&self, value: f64) -> Result<Work<f64>> {
        let (mut sum, mut handle) = (Box::new(0.0), std::ptr::null_mut());
        let status = unsafe { sys::gw_gang_all_sum_async(self.raw(), value, &mut *sum, &mut handle) };
        Ok(Work::boxed(made(status, handle)?, sum))
    }

    /// Collective. The root's flag on every rank.
    ///
    /// # Errors
    /// As [`Collective::run`](crate::Collective::run).
    pub fn broadcast_flag(&self, flag: bool, root: usize) -> Result<bool> {
        let mut out = 0;
        check(unsafe { sys::gw_gang_broadcast_flag(self.raw(), flag as i32, rank_number(root), &mut out) })?;
        Ok(out != 0)
    }

    /// Collective. [`broadcast_flag`](Gang::broadcast_flag) as a work, whose result is 0 or 1.
    ///
    /// # Errors
    /// As [`Collective::start`](crate::Collective::start).
    pub fn broadcast_flag_async(&self, flag: bool, root: usize) -> Result<Work<i32>> {
        let (mut out, mut handle) = (Box::new(0), std::ptr::null_mut());
        let (flag, root) = (flag as i32, rank_number(root));
        let status =
            unsafe { sys::gw_gang_broadcast_flag_async(self.raw(), flag, root, &mut *out, &mut handle) };
        Ok(Work::boxed(made(status, handle)?, out))
    }

    /// Collective. The root's bytes on every rank; elsewhere `bytes` is not read.
    ///
    /// # Errors
    /// As [`Collective::run`](crate::Collective::run).
    pub fn broadcast_bytes(&self, bytes: &[u8], root: usize) -> Result<Vec<u8>> {
        let (data, mut out) = (bytes.as_ptr().cast(), std::ptr::null_mut());
        let root = rank_number(root);
        let status = unsafe { sys::gw_gang_broadcast_bytes(self.raw(), data, bytes.len(), root, &mut out) };
        Ok(Bytes(made(status, out)?).to_vec())
    }

    /// Collective. Every rank's bytes.
    ///
    /// # Errors
    /// As [`Collective::run`](crate::Collective::run).
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

/// Bytes that the library made.
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
