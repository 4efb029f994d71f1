//! Collectives whose parts differ in length by rank. Lists of counts have a number for each rank and are the same on
//! every one, but for `sent` and `got`; the library reads them before a call returns.
use crate::collectives::{optional_mut, record, Reduce};
use crate::element::Element;
use crate::error::Result;
use crate::gang::{rank_number, Gang};
use crate::memory::Buffer;
use crate::options::Field;
use crate::work::Work;
use gangway_sys as sys;

impl Gang {
    /// `output` is every rank's input, one after the other: `counts[r]` elements of rank r.
    pub fn all_gather_counts<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        counts: &[usize],
    ) -> Result<()> {
        self.run(&self.all_gather_parts(input, output, counts)?)
    }

    pub fn all_gather_counts_async<I, O>(
        &self,
        input: I,
        mut output: O,
        counts: &[usize],
    ) -> Result<Work<(I, O)>>
    where
        I: Buffer,
        O: Buffer<Item = I::Item>,
    {
        let r = self.all_gather_parts(input.slice(), output.slice_mut(), counts)?;
        unsafe { self.start(r, (input, output)) }
    }

    /// `input` is a part of `counts[r]` elements for each rank r; `output` is this rank's part of the reduction.
    pub fn reduce_scatter_counts<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        counts: &[usize],
        reduce: Reduce,
    ) -> Result<()> {
        self.run(&self.reduce_scatter_parts(input, output, counts, reduce)?)
    }

    pub fn reduce_scatter_counts_async<I, O>(
        &self,
        input: I,
        mut output: O,
        counts: &[usize],
        reduce: Reduce,
    ) -> Result<Work<(I, O)>>
    where
        I: Buffer,
        O: Buffer<Item = I::Item>,
    {
        let r = self.reduce_scatter_parts(input.slice(), output.slice_mut(), counts, reduce)?;
        unsafe { self.start(r, (input, output)) }
    }

    /// `output` is wanted on the root only: every rank's input, `counts[r]` elements of rank r.
    pub fn gather_counts<T: Element>(
        &self,
        input: &[T],
        output: Option<&mut [T]>,
        counts: &[usize],
        root: usize,
    ) -> Result<()> {
        self.run(&self.gather_parts(input, output, counts, root)?)
    }

    pub fn gather_counts_async<I, O>(
        &self,
        input: I,
        mut output: Option<O>,
        counts: &[usize],
        root: usize,
    ) -> Result<Work<(I, Option<O>)>>
    where
        I: Buffer,
        O: Buffer<Item = I::Item>,
    {
        let r = self.gather_parts(input.slice(), output.as_mut().map(O::slice_mut), counts, root)?;
        unsafe { self.start(r, (input, output)) }
    }

    /// `input` is wanted on the root only: a part of `counts[r]` elements for each rank r.
    pub fn scatter_counts<T: Element>(
        &self,
        input: Option<&[T]>,
        output: &mut [T],
        counts: &[usize],
        root: usize,
    ) -> Result<()> {
        self.run(&self.scatter_parts(input, output, counts, root)?)
    }

    pub fn scatter_counts_async<I, O>(
        &self,
        input: Option<I>,
        mut output: O,
        counts: &[usize],
        root: usize,
    ) -> Result<Work<(Option<I>, O)>>
    where
        I: Buffer,
        O: Buffer<Item = I::Item>,
    {
        let r = self.scatter_parts(input.as_ref().map(I::slice), output.slice_mut(), counts, root)?;
        unsafe { self.start(r, (input, output)) }
    }

    /// `sent[r]` elements of `input` go to rank r, `got[r]` of `output` come from it.
    pub fn all_to_all_counts<T: Element>(
        &self,
        input: &[T],
        sent: &[usize],
        output: &mut [T],
        got: &[usize],
    ) -> Result<()> {
        let (mut r, counts) = self.all_to_all_parts(input, sent, output, got)?;
        r.counts = counts.as_ptr();
        self.run(&r)
    }

    pub fn all_to_all_counts_async<I, O>(
        &self,
        input: I,
        sent: &[usize],
        mut output: O,
        got: &[usize],
    ) -> Result<Work<(I, O)>>
    where
        I: Buffer,
        O: Buffer<Item = I::Item>,
    {
        let (mut r, counts) = self.all_to_all_parts(input.slice(), sent, output.slice_mut(), got)?;
        r.counts = counts.as_ptr();
        unsafe { self.start(r, (input, output)) }
    }

    fn all_gather_parts<T: Element>(
        &self,
        from: &[T],
        to: &mut [T],
        counts: &[usize],
    ) -> Result<sys::gw_collective> {
        let call = "all_gather_counts";
        let (own, all) = self.own_and_all(call, "counts", counts)?;
        self.expect(call, "input", from.len(), own)?;
        self.expect(call, "output", to.len(), all)?;
        let r = record(sys::GW_ALL_GATHER, from.as_ptr(), to.as_mut_ptr(), 0);
        Ok(sys::gw_collective { counts: counts.as_ptr(), ..r })
    }

    fn reduce_scatter_parts<T: Element>(
        &self,
        from: &[T],
        to: &mut [T],
        counts: &[usize],
        reduce: Reduce,
    ) -> Result<sys::gw_collective> {
        let call = "reduce_scatter_counts";
        let (own, all) = self.own_and_all(call, "counts", counts)?;
        self.expect(call, "input", from.len(), all)?;
        self.expect(call, "output", to.len(), own)?;
        let r = record(sys::GW_REDUCE_SCATTER, from.as_ptr(), to.as_mut_ptr(), 0);
        Ok(sys::gw_collective { counts: counts.as_ptr(), reduce: reduce.write(), ..r })
    }

    fn gather_parts<T: Element>(
        &self,
        from: &[T],
        to: Option<&mut [T]>,
        counts: &[usize],
        root: usize,
    ) -> Result<sys::gw_collective> {
        let call = "gather_counts";
        let (own, all) = self.own_and_all(call, "counts", counts)?;
        self.expect(call, "input", from.len(), own)?;
        self.expect_on(call, root, "output", to.as_ref().map(|to| to.len()), all)?;
        let r = record(sys::GW_GATHER, from.as_ptr(), optional_mut(to), 0);
        Ok(sys::gw_collective { counts: counts.as_ptr(), peer: rank_number(root), ..r })
    }

    fn scatter_parts<T: Element>(
        &self,
        from: Option<&[T]>,
        to: &mut [T],
        counts: &[usize],
        root: usize,
    ) -> Result<sys::gw_collective> {
        let call = "scatter_counts";
        let (own, all) = self.own_and_all(call, "counts", counts)?;
        self.expect_on(call, root, "input", from.map(<[T]>::len), all)?;
        self.expect(call, "output", to.len(), own)?;
        let from = from.map_or(std::ptr::null(), <[T]>::as_ptr);
        let r = record(sys::GW_SCATTER, from, to.as_mut_ptr(), 0);
        Ok(sys::gw_collective { counts: counts.as_ptr(), peer: rank_number(root), ..r })
    }

    /// With what is sent to each rank and then what comes from it, as the library reads them.
    fn all_to_all_parts<T: Element>(
        &self,
        from: &[T],
        sent: &[usize],
        to: &mut [T],
        got: &[usize],
    ) -> Result<(sys::gw_collective, Vec<usize>)> {
        let call = "all_to_all_counts";
        let ((_, all_sent), (_, all_got)) =
            (self.own_and_all(call, "sent", sent)?, self.own_and_all(call, "got", got)?);
        self.expect(call, "input", from.len(), all_sent)?;
        self.expect(call, "output", to.len(), all_got)?;
        Ok((record(sys::GW_ALL_TO_ALL, from.as_ptr(), to.as_mut_ptr(), 0), [sent, got].concat()))
    }

    /// This rank's number of a list, and the sum of all.
    fn own_and_all(&self, call: &str, what: &str, counts: &[usize]) -> Result<(usize, usize)> {
        self.expect(call, what, counts.len(), self.size())?;
        let sum = counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count));
        let all = sum.ok_or_else(|| self.refused(call, format!("{what} {counts:?} are too many")))?;
        Ok((counts[self.rank()], all))
    }
}
