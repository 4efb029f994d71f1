//! Collectives. Every rank of the gang calls the same one; lengths are checked here, ranks and types by the
//! library.
use crate::element::Element;
use crate::error::{check, Error, Result};
use crate::gang::{rank_number, Gang};
use crate::options::{initialised, open_enum, Field};
use gangway_sys as sys;
use std::os::raw::c_void;

open_enum! {
    /// How values of ranks become one.
    Reduce {
        Sum = GW_SUM,
        /// The sum divided by the gang's size; floating types only.
        Mean = GW_MEAN,
        Product = GW_PRODUCT,
        /// Of truth values: and.
        Min = GW_MIN,
        /// Of truth values: or.
        Max = GW_MAX,
    }
}

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

/// Address of a buffer that only the root has; null elsewhere.
pub(crate) fn optional_mut<T>(values: Option<&mut [T]>) -> *mut T {
    values.map_or(std::ptr::null_mut(), <[T]>::as_mut_ptr)
}

impl Gang {
    /// Collective. Returns when every rank is here.
    pub fn barrier(&self) -> Result<()> {
        check(unsafe { sys::gw_gang_barrier(self.raw(), std::ptr::null_mut()) })
    }

    /// In place.
    pub fn all_reduce<T: Element>(&self, values: &mut [T], reduce: Reduce) -> Result<()> {
        let data: *mut c_void = values.as_mut_ptr().cast();
        let stream = std::ptr::null_mut();
        check(unsafe {
            sys::gw_gang_all_reduce(self.raw(), data, data, values.len(), T::DTYPE.0, reduce.write(), stream)
        })
    }

    pub fn all_reduce_into<T: Element>(&self, input: &[T], output: &mut [T], reduce: Reduce) -> Result<()> {
        self.expect("all_reduce_into", "output", output.len(), input.len())?;
        let mut r = record(sys::GW_ALL_REDUCE, input.as_ptr(), output.as_mut_ptr(), input.len());
        r.reduce = reduce.write();
        self.run(&r)
    }

    /// Adds the result to `output` (floating types).
    pub fn all_reduce_add<T: Element>(&self, input: &[T], output: &mut [T], reduce: Reduce) -> Result<()> {
        self.expect("all_reduce_add", "output", output.len(), input.len())?;
        let mut r = record(sys::GW_ALL_REDUCE, input.as_ptr(), output.as_mut_ptr(), input.len());
        r.reduce = reduce.write();
        r.accumulate = 1;
        self.run(&r)
    }

    /// `output` is every rank's input, one after the other.
    pub fn all_gather<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<()> {
        self.expect("all_gather", "output", output.len(), self.times_size("all_gather", input.len())?)?;
        self.run(&record(sys::GW_ALL_GATHER, input.as_ptr(), output.as_mut_ptr(), input.len()))
    }

    /// This rank's part of `values` is its input.
    pub fn all_gather_in_place<T: Element>(&self, values: &mut [T]) -> Result<()> {
        let count = self.part_of("all_gather_in_place", "values", values.len())?;
        let data = values.as_mut_ptr();
        let input = unsafe { data.add(self.rank() * count) }; // within `values`: rank < size
        self.run(&record(sys::GW_ALL_GATHER, input, data, count))
    }

    /// Into one buffer for each rank.
    pub fn all_gather_list<T: Element>(&self, input: &[T], outputs: &mut [&mut [T]]) -> Result<()> {
        self.expect_list("all_gather_list", outputs.iter().map(|output| output.len()), input.len())?;
        let places: Vec<*mut c_void> = outputs.iter_mut().map(|output| output.as_mut_ptr().cast()).collect();
        let (from, stream) = (input.as_ptr().cast(), std::ptr::null_mut());
        check(unsafe {
            sys::gw_gang_all_gather_list(self.raw(), from, places.as_ptr(), input.len(), T::DTYPE.0, stream)
        })
    }

    /// `input` is one part for each rank; `output` is this rank's part of the reduction.
    pub fn reduce_scatter<T: Element>(&self, input: &[T], output: &mut [T], reduce: Reduce) -> Result<()> {
        self.expect(
            "reduce_scatter",
            "input",
            input.len(),
            self.times_size("reduce_scatter", output.len())?,
        )?;
        let mut r = record(sys::GW_REDUCE_SCATTER, input.as_ptr(), output.as_mut_ptr(), output.len());
        r.reduce = reduce.write();
        self.run(&r)
    }

    /// From the root to all.
    pub fn broadcast<T: Element>(&self, values: &mut [T], root: usize) -> Result<()> {
        let data = values.as_mut_ptr();
        let mut r = record(sys::GW_BROADCAST, data, data, values.len());
        r.peer = rank_number(root);
        self.run(&r)
    }

    /// `output` is wanted on the root only.
    pub fn reduce<T: Element>(
        &self,
        input: &[T],
        output: Option<&mut [T]>,
        reduce: Reduce,
        root: usize,
    ) -> Result<()> {
        self.expect_on("reduce", root, "output", output.as_ref().map(|o| o.len()), input.len())?;
        let mut r = record(sys::GW_REDUCE, input.as_ptr(), optional_mut(output), input.len());
        r.reduce = reduce.write();
        r.peer = rank_number(root);
        self.run(&r)
    }

    /// `output` is wanted on the root only: every rank's input, one after the other.
    pub fn gather<T: Element>(&self, input: &[T], output: Option<&mut [T]>, root: usize) -> Result<()> {
        self.expect_on(
            "gather",
            root,
            "output",
            output.as_ref().map(|o| o.len()),
            self.times_size("gather", input.len())?,
        )?;
        let mut r = record(sys::GW_GATHER, input.as_ptr(), optional_mut(output), input.len());
        r.peer = rank_number(root);
        self.run(&r)
    }

    /// `input` is wanted on the root only: one part for each rank.
    pub fn scatter<T: Element>(&self, input: Option<&[T]>, output: &mut [T], root: usize) -> Result<()> {
        self.expect_on(
            "scatter",
            root,
            "input",
            input.map(<[T]>::len),
            self.times_size("scatter", output.len())?,
        )?;
        let from = input.map_or(std::ptr::null(), <[T]>::as_ptr);
        let mut r = record(sys::GW_SCATTER, from, output.as_mut_ptr(), output.len());
        r.peer = rank_number(root);
        self.run(&r)
    }

    /// Part r of `input` goes to rank r, part r of `output` comes from it.
    pub fn all_to_all<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<()> {
        self.expect("all_to_all", "output", output.len(), input.len())?;
        let count = self.part_of("all_to_all", "input", input.len())?;
        self.run(&record(sys::GW_ALL_TO_ALL, input.as_ptr(), output.as_mut_ptr(), count))
    }

    /// The sum of all ranks' values.
    pub fn all_sum(&self, value: f64) -> Result<f64> {
        let mut sum = 0.0;
        check(unsafe { sys::gw_gang_all_sum(self.raw(), value, &mut sum) })?;
        Ok(sum)
    }

    /// The root's flag on every rank.
    pub fn broadcast_flag(&self, flag: bool, root: usize) -> Result<bool> {
        let mut out = 0;
        check(unsafe { sys::gw_gang_broadcast_flag(self.raw(), flag as i32, rank_number(root), &mut out) })?;
        Ok(out != 0)
    }

    pub(crate) fn run(&self, record: &sys::gw_collective) -> Result<()> {
        check(unsafe { sys::gw_gang_run(self.raw(), record, std::ptr::null_mut(), std::ptr::null_mut()) })
    }

    /// A refusal in the words that the library's own have.
    pub(crate) fn refused(&self, call: &str, why: String) -> Error {
        let gang = self.name();
        let error = Error::argument(format!("{gang}.{call}: {why}"));
        Error { gang, op: call.into(), rank: Some(self.rank()), ..error }
    }

    pub(crate) fn expect(&self, call: &str, what: &str, len: usize, expected: usize) -> Result<()> {
        if len == expected {
            return Ok(());
        }
        Err(self.refused(call, format!("{what} has {len} elements, {expected} are needed")))
    }

    /// One output for each rank, each of `expected` elements.
    pub(crate) fn expect_list(
        &self,
        call: &str,
        lengths: impl ExactSizeIterator<Item = usize>,
        expected: usize,
    ) -> Result<()> {
        self.expect(call, "outputs", lengths.len(), self.size())?;
        match lengths.enumerate().find(|(_, len)| *len != expected) {
            Some((i, len)) => self.expect(call, &format!("outputs[{i}]"), len, expected),
            None => Ok(()),
        }
    }

    pub(crate) fn expect_on(
        &self,
        call: &str,
        root: usize,
        what: &str,
        len: Option<usize>,
        expected: usize,
    ) -> Result<()> {
        match len {
            Some(len) => self.expect(call, what, len, expected),
            None if self.rank() == root => Err(self.refused(call, format!("{what} is None on the root"))),
            None => Ok(()),
        }
    }

    pub(crate) fn times_size(&self, call: &str, count: usize) -> Result<usize> {
        let all = count.checked_mul(self.size());
        all.ok_or_else(|| self.refused(call, format!("{count} elements a rank are too many")))
    }

    pub(crate) fn part_of(&self, call: &str, what: &str, count: usize) -> Result<usize> {
        let size = self.size();
        if count % size == 0 {
            return Ok(count / size);
        }
        Err(self.refused(call, format!("{what} has {count} elements, not a multiple of {size} ranks")))
    }
}
