//! The lengths of a collective's buffers: compared before the call, because the library sees addresses only. The
//! library checks ranks and types.
use super::Collective;
use crate::error::{Error, Result};
use crate::gang::{rank_number, Gang};
use gangway_sys as sys;
use std::os::raw::c_void;

/// The names of the operations, by number.
const NAMES: [&str; 11] = [
    "barrier",
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "all_to_all",
    "send",
    "recv",
];

impl<B> Collective<'_, B> {
    /// Compares the lengths with each other, with the counts and with the size of the gang, and completes the
    /// record.
    #[inline]
    pub(super) fn complete(&mut self) -> Result<()> {
        let (input, output) = match self.record.op {
            sys::GW_ALL_GATHER | sys::GW_GATHER => self.part_and_whole(self.input, self.output)?,
            sys::GW_REDUCE_SCATTER | sys::GW_SCATTER => {
                let (part, whole) = self.part_and_whole(self.output, self.input)?;
                (whole, part)
            }
            sys::GW_ALL_TO_ALL => self.sent_and_received()?,
            _ => return self.complete_whole(),
        };
        self.expect("input", self.input, input)?;
        self.expect("output", self.output, output)?;
        if self.input.is_none() && self.record.op == sys::GW_ALL_GATHER {
            let before = match self.counts {
                Some(counts) => counts[..self.gang.rank()].iter().sum(),
                None => self.gang.rank() * input,
            };
            // Within the output, whose length is that of all parts.
            let own = unsafe { self.record.output.cast::<u8>().add(before * self.element_bytes) };
            self.record.input = own as *const c_void;
        }
        Ok(())
    }

    /// The operations in which nothing is cut into parts.
    #[inline]
    fn complete_whole(&mut self) -> Result<()> {
        if self.counts.is_some() || self.recv_counts.is_some() {
            return Err(self.refused("takes one count, not counts per rank"));
        }
        self.record.count = self.input.or(self.output).unwrap_or(0);
        match self.record.op {
            sys::GW_ALL_REDUCE | sys::GW_REDUCE => self.expect("output", self.output, self.record.count),
            _ => Ok(()),
        }
    }

    /// The lengths that a part and the whole must have. Without a part's buffer the whole is cut evenly (in
    /// place).
    fn part_and_whole(&mut self, part: Option<usize>, whole: Option<usize>) -> Result<(usize, usize)> {
        if self.recv_counts.is_some() {
            return Err(self.refused("takes one list of counts"));
        }
        if let Some(counts) = self.counts {
            self.record.counts = counts.as_ptr();
            return self.own_and_all("counts", counts);
        }
        let (part, whole) = match (part, whole) {
            (Some(part), _) => (part, self.times_size(part)?),
            (None, whole) => (self.part_of("output", whole.unwrap_or(0))?, whole.unwrap_or(0)),
        };
        self.record.count = part;
        Ok((part, whole))
    }

    /// The lengths that input and output of an all_to_all must have.
    fn sent_and_received(&mut self) -> Result<(usize, usize)> {
        let input = self.input.unwrap_or(0);
        match (self.counts, self.recv_counts) {
            (None, None) => {
                self.expect("output", self.output, input)?;
                self.record.count = self.part_of("input", input)?;
                Ok((input, input))
            }
            (None, Some(_)) => Err(self.refused("has recv_counts without counts")),
            (Some(sent), received) => {
                let received = received.unwrap_or(sent);
                let all_sent = self.own_and_all("counts", sent)?.1;
                let all_received = self.own_and_all("recv_counts", received)?.1;
                self.joined = [sent, received].concat();
                self.record.counts = self.joined.as_ptr();
                Ok((all_sent, all_received))
            }
        }
    }

    /// This rank's number of a list, and the sum of all.
    fn own_and_all(&self, what: &str, counts: &[usize]) -> Result<(usize, usize)> {
        self.expect(what, Some(counts.len()), self.gang.size())?;
        let sum = counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count));
        let all = sum.ok_or_else(|| self.refused(&format!("{what} {counts:?} are too many")))?;
        Ok((counts[self.gang.rank()], all))
    }

    fn times_size(&self, count: usize) -> Result<usize> {
        let all = count.checked_mul(self.gang.size());
        all.ok_or_else(|| self.refused(&format!("{count} elements a rank are too many")))
    }

    fn part_of(&self, what: &str, count: usize) -> Result<usize> {
        let size = self.gang.size();
        if count % size == 0 {
            return Ok(count / size);
        }
        Err(self.refused(&format!("{what} has {count} elements, not a multiple of {size} ranks")))
    }

    /// The length of a buffer or list. A buffer that this rank does not have is wrong on the root only.
    #[inline]
    fn expect(&self, what: &str, len: Option<usize>, expected: usize) -> Result<()> {
        match len {
            Some(len) if len == expected => Ok(()),
            Some(len) => Err(self.gang.wrong_length(self.name(), what, len, expected)),
            None if self.record.peer == rank_number(self.gang.rank()) => {
                Err(self.refused(&format!("{what} is None on the root")))
            }
            None => Ok(()),
        }
    }

    fn name(&self) -> &'static str {
        NAMES[self.record.op as usize]
    }

    #[cold]
    fn refused(&self, why: &str) -> Error {
        self.gang.refused(self.name(), why)
    }
}

impl Gang {
    /// A refusal in the words that the library's own have.
    #[cold]
    pub(crate) fn refused(&self, call: &str, why: &str) -> Error {
        let gang = self.name();
        let error = Error::argument(format!("{gang}.{call}: {why}"));
        Error { gang, op: call.into(), rank: Some(self.rank()), ..error }
    }

    #[cold]
    pub(crate) fn wrong_length(&self, call: &str, what: &str, len: usize, expected: usize) -> Error {
        self.refused(call, &format!("{what} has {len} elements, {expected} are needed"))
    }
}
