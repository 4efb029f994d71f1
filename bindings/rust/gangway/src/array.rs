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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array<T: Element> {
    values: Vec<T>,
    shape: Vec<usize>,
}

impl<T: Element> Array<T> {
    /// `shape` is of as many elements as `values` has, in at most 8 dims.
    ///
    /// # Errors
    /// `InvalidArgument`: `values` has another number of elements than `shape`, or there are more than 8
    /// dims.
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

/// None, one or several views: `()`, `&x`, `(&x, &y)`, `[&x, &y]` or a slice of what has a view.
pub trait Views<'a> {
    fn views(self) -> Vec<View<'a>>;
}

impl<'a, V: AsView> Views<'a> for &'a V {
    fn views(self) -> Vec<View<'a>> {
        vec![self.as_view()]
    }
}

impl<'a> Views<'a> for () {
    fn views(self) -> Vec<View<'a>> {
        Vec::new()
    }
}

impl<'a, V: AsView> Views<'a> for &'a [V] {
    fn views(self) -> Vec<View<'a>> {
        self.iter().map(AsView::as_view).collect()
    }
}

impl<'a, V: AsView + ?Sized, const N: usize> Views<'a> for [&'a V; N] {
    fn views(self) -> Vec<View<'a>> {
        self.into_iter().map(AsView::as_view).collect()
    }
}

macro_rules! tuples {
    ($(($($kind:ident $place:tt),+))*) => { $(impl<'a, $($kind: AsView),+> Views<'a> for ($(&'a $kind,)+) {
        fn views(self) -> Vec<View<'a>> {
            vec![$(self.$place.as_view()),+]
        }
    })* };
}
tuples!((A 0, B 1) (A 0, B 1, C 2) (A 0, B 1, C 2, D 3));
