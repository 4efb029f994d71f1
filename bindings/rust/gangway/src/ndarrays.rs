//! Arrays of the crate ndarray as views of this one, and the other way round.
use crate::array::AsView;
use crate::element::Element;
use crate::error::{Error, Result};
use crate::view::{View, ViewMut};
use ::ndarray::{ArrayBase, ArrayViewD, ArrayViewMutD, Data, Dimension, IxDyn, ShapeBuilder, StrideShape};

impl<T: Element, S: Data<Elem = T>, D: Dimension> AsView for ArrayBase<S, D> {
    /// Takes any strides that are not negative, so that transposed arrays and slices are not copied.
    ///
    /// # Panics
    /// The array has more than 8 dims, or was reversed along a dim: `as_standard_layout` copies such a one.
    fn as_view(&self) -> View<'_> {
        let steps = self.shape().iter().zip(self.strides());
        // The stride of a dim with one element is never used.
        let steps = steps.map(|(dim, step)| if *dim <= 1 { Ok(0) } else { usize::try_from(*step) });
        let strides: Vec<usize> = match steps.collect() {
            Ok(strides) => strides,
            Err(_) => panic!("an array that was reversed along a dim has no view: {:?}", self.strides()),
        };
        // The array is borrowed as long as the view.
        unsafe { View::of_parts(self.as_ptr(), self.shape(), &strides) }.expect("at most 8 dims")
    }
}

fn shape_of(shape: &[i64], strides: &[i64]) -> Result<StrideShape<IxDyn>> {
    let numbers = |list: &[i64]| -> Result<Vec<usize>> {
        let number =
            |n: &i64| usize::try_from(*n).map_err(|_| Error::argument(format!("{list:?} is below 0")));
        list.iter().map(number).collect()
    };
    Ok(IxDyn(&numbers(shape)?).strides(IxDyn(&numbers(strides)?)))
}

impl<'a> View<'a> {
    /// The same elements as an array of the crate ndarray, whatever the strides.
    ///
    /// # Errors
    /// `InvalidArgument`: the elements are of another type, or lie on a GPU.
    pub fn ndarray<T: Element>(&self) -> Result<ArrayViewD<'a, T>> {
        let shape = shape_of(self.shape(), self.strides())?;
        Ok(unsafe { ArrayViewD::from_shape_ptr(shape, self.address()?) })
    }
}

impl ViewMut<'_> {
    /// The same elements as an array of the crate ndarray, to read and write.
    ///
    /// # Errors
    /// `InvalidArgument`: the elements are of another type, or lie on a GPU.
    pub fn ndarray_mut<T: Element>(&mut self) -> Result<ArrayViewMutD<'_, T>> {
        let shape = shape_of(self.shape(), self.strides())?;
        Ok(unsafe { ArrayViewMutD::from_shape_ptr(shape, self.address()?) })
    }
}
