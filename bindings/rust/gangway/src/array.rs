use crate::element::Element;
use crate::error::Result;
use crate::view::{View, ViewMut};

/// What can be read as a view.
pub trait AsView {
    fn as_view(&self) -> View<'_>;
}

impl AsView for View<'_> {
    fn as_view(&self) -> View<'_> {
        *self
    }
}

impl AsView for ViewMut<'_> {
    fn as_view(&self) -> View<'_> {
        self.reborrow()
    }
}

impl<V: AsView + ?Sized> AsView for &V {
    fn as_view(&self) -> View<'_> {
        (**self).as_view()
    }
}

/// Owned elements with a shape, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct Array<T: Element> {
    values: Vec<T>,
    shape: Vec<usize>,
}

impl<T: Element> Array<T> {
    /// `shape` is of as many elements as `values` has, in at most 8 dims.
    pub fn new(values: Vec<T>, shape: &[usize]) -> Result<Array<T>> {
        View::new(&values, shape)?;
        Ok(Array { values, shape: shape.to_vec() })
    }

    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    pub fn into_vec(self) -> Vec<T> {
        self.values
    }
}

impl<T: Element> std::ops::Deref for Array<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.values
    }
}

impl<T: Element> std::ops::DerefMut for Array<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.values
    }
}

impl<T: Element> AsView for Array<T> {
    fn as_view(&self) -> View<'_> {
        View::new(&self.values, &self.shape).expect("checked by new")
    }
}

/// None, one or several views: `&()`, `&x`, `&(&x, &y)`, or an array or slice of one kind.
pub trait Views {
    fn views(&self) -> Vec<View<'_>>;
}

impl<V: AsView> Views for V {
    fn views(&self) -> Vec<View<'_>> {
        vec![self.as_view()]
    }
}

impl Views for () {
    fn views(&self) -> Vec<View<'_>> {
        Vec::new()
    }
}

impl<V: AsView> Views for [V] {
    fn views(&self) -> Vec<View<'_>> {
        self.iter().map(|view| view.as_view()).collect()
    }
}

impl<V: AsView, const N: usize> Views for [V; N] {
    fn views(&self) -> Vec<View<'_>> {
        self.as_slice().views()
    }
}

macro_rules! tuples {
    ($(($($kind:ident $place:tt),+))*) => { $(impl<$($kind: AsView),+> Views for ($($kind,)+) {
        fn views(&self) -> Vec<View<'_>> {
            vec![$(self.$place.as_view()),+]
        }
    })* };
}
tuples!((A 0, B 1) (A 0, B 1, C 2) (A 0, B 1, C 2, D 3));
