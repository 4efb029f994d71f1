//! The collectives of a gang. Each is a [`Collective`]: `run()` waits for it, `start()` gives a work.
use crate::buffer::{Buffer, BufferMut};
use crate::collective::{Collective, Place};
use crate::gang::Gang;
use crate::options::{open_enum, Field};
use gangway_sys as sys;

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

impl Gang {
    /// Is done when every rank is here.
    pub fn barrier(&self) -> Collective<'_, ()> {
        Collective::new::<u8>(self, sys::GW_BARRIER, Place::NONE, Place::NONE, ())
    }

    /// In place.
    #[inline]
    pub fn all_reduce<B: BufferMut>(&self, mut values: B, reduce: Reduce) -> Collective<'_, B> {
        let place = Place::write(&mut values);
        Collective::new(self, sys::GW_ALL_REDUCE, place, place, values).reduce(reduce.write())
    }

    /// `output` is as long as `input`.
    pub fn all_reduce_into<I, O>(&self, input: I, mut output: O, reduce: Reduce) -> Collective<'_, (I, O)>
    where
        I: Buffer,
        O: BufferMut<Item = I::Item>,
    {
        let (from, to) = (Place::read(&input), Place::write(&mut output));
        Collective::new(self, sys::GW_ALL_REDUCE, from, to, (input, output)).reduce(reduce.write())
    }

    /// `output` is every rank's input, one after the other.
    pub fn all_gather<I, O>(&self, input: I, mut output: O) -> Collective<'_, (I, O)>
    where
        I: Buffer,
        O: BufferMut<Item = I::Item>,
    {
        let (from, to) = (Place::read(&input), Place::write(&mut output));
        Collective::new(self, sys::GW_ALL_GATHER, from, to, (input, output))
    }

    /// This rank's part of `values` is its input.
    pub fn all_gather_in_place<B: BufferMut>(&self, mut values: B) -> Collective<'_, B> {
        let to = Place::write(&mut values);
        Collective::new(self, sys::GW_ALL_GATHER, Place::NONE, to, values)
    }

    /// `input` is one part for each rank; `output` is this rank's part of the reduction.
    pub fn reduce_scatter<I, O>(&self, input: I, mut output: O, reduce: Reduce) -> Collective<'_, (I, O)>
    where
        I: Buffer,
        O: BufferMut<Item = I::Item>,
    {
        let (from, to) = (Place::read(&input), Place::write(&mut output));
        Collective::new(self, sys::GW_REDUCE_SCATTER, from, to, (input, output)).reduce(reduce.write())
    }

    /// From the root to all.
    pub fn broadcast<B: BufferMut>(&self, mut values: B, root: usize) -> Collective<'_, B> {
        let place = Place::write(&mut values);
        Collective::new(self, sys::GW_BROADCAST, place, place, values).peer(root)
    }

    /// `output` is wanted on the root only, and is as long as `input`.
    pub fn reduce<I, O>(
        &self,
        input: I,
        mut output: Option<O>,
        reduce: Reduce,
        root: usize,
    ) -> Collective<'_, (I, Option<O>)>
    where
        I: Buffer,
        O: BufferMut<Item = I::Item>,
    {
        let (from, to) = (Place::read(&input), output.as_mut().map_or(Place::NONE, Place::write));
        let collective = Collective::new(self, sys::GW_REDUCE, from, to, (input, output));
        collective.reduce(reduce.write()).peer(root)
    }

    /// `output` is wanted on the root only: every rank's input, one after the other.
    pub fn gather<I, O>(&self, input: I, mut output: Option<O>, root: usize) -> Collective<'_, (I, Option<O>)>
    where
        I: Buffer,
        O: BufferMut<Item = I::Item>,
    {
        let (from, to) = (Place::read(&input), output.as_mut().map_or(Place::NONE, Place::write));
        Collective::new(self, sys::GW_GATHER, from, to, (input, output)).peer(root)
    }

    /// `input` is wanted on the root only: one part for each rank.
    pub fn scatter<I, O>(
        &self,
        input: Option<I>,
        mut output: O,
        root: usize,
    ) -> Collective<'_, (Option<I>, O)>
    where
        I: Buffer,
        O: BufferMut<Item = I::Item>,
    {
        let (from, to) = (input.as_ref().map_or(Place::NONE, Place::read), Place::write(&mut output));
        Collective::new(self, sys::GW_SCATTER, from, to, (input, output)).peer(root)
    }

    /// Part r of `input` goes to rank r, part r of `output` comes from it.
    pub fn all_to_all<I, O>(&self, input: I, mut output: O) -> Collective<'_, (I, O)>
    where
        I: Buffer,
        O: BufferMut<Item = I::Item>,
    {
        let (from, to) = (Place::read(&input), Place::write(&mut output));
        Collective::new(self, sys::GW_ALL_TO_ALL, from, to, (input, output))
    }

    /// Over this rank and `peer`, which receives as many elements of the same type.
    pub fn send<B: Buffer>(&self, input: B, peer: usize) -> Collective<'_, B> {
        let from = Place::read(&input);
        Collective::new(self, sys::GW_SEND, from, Place::NONE, input).peer(peer)
    }

    /// Over this rank and `peer`, which sends as many elements of the same type.
    pub fn recv<B: BufferMut>(&self, mut output: B, peer: usize) -> Collective<'_, B> {
        let to = Place::write(&mut output);
        Collective::new(self, sys::GW_RECV, Place::NONE, to, output).peer(peer)
    }
}
