//! What a collective reads and writes: borrowed memory, or memory that a work can own.
use crate::array::Array;
use crate::element::Element;
use crate::memory::GangMemory;

/// Elements that a collective reads: a borrowed slice or array, or a [`Vec`], [`Array`] or [`GangMemory`],
/// borrowed or by value.
///
/// # Safety
/// `slice` always gives the same memory, which does not move with the owner.
pub unsafe trait Buffer {
    type Item: Element;
    fn slice(&self) -> &[Self::Item];
}

/// Elements that a collective writes: the same kinds by `&mut` or by value.
///
/// # Safety
/// `slice_mut` gives the memory of `slice`.
pub unsafe trait BufferMut: Buffer {
    fn slice_mut(&mut self) -> &mut [Self::Item];
}

macro_rules! borrowed {
    ($([$($count:tt)*] $kind:ty),*) => { $(
        unsafe impl<T: Element, $($count)*> Buffer for &$kind {
            type Item = T;
            fn slice(&self) -> &[T] {
                &self[..]
            }
        }
        unsafe impl<T: Element, $($count)*> Buffer for &mut $kind {
            type Item = T;
            fn slice(&self) -> &[T] {
                &self[..]
            }
        }
        unsafe impl<T: Element, $($count)*> BufferMut for &mut $kind {
            fn slice_mut(&mut self) -> &mut [T] {
                &mut self[..]
            }
        }
    )* };
}
borrowed!([] [T], [const N: usize] [T; N], [] Vec<T>, [] Array<T>, [] GangMemory<T>);

macro_rules! owned {
    ($($kind:ident),*) => { $(
        unsafe impl<T: Element> Buffer for $kind<T> {
            type Item = T;
            fn slice(&self) -> &[T] {
                self
            }
        }
        unsafe impl<T: Element> BufferMut for $kind<T> {
            fn slice_mut(&mut self) -> &mut [T] {
                self
            }
        }
    )* };
}
owned!(Vec, Array, GangMemory);
