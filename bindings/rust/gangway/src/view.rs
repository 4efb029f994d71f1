use crate::element::{DType, Element};
use crate::error::{Error, Result};
use gangway_sys as sys;
use std::fmt;
use std::marker::PhantomData;
use std::os::raw::c_void;

const MAX_DIMS: usize = 8;

/// How a refusal names a view: by its argument, or as an element of a list.
#[derive(Clone, Copy)]
pub(crate) struct Name(pub(crate) &'static str, pub(crate) Option<usize>);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Some(index) => write!(f, "{}[{index}]", self.0),
            None => f.write_str(self.0),
        }
    }
}

/// Name, address, shape and strides, by value.
#[derive(Clone, Copy)]
struct Layout {
    name: Name,
    data: *mut u8,
    dtype: DType,
    ndim: usize,
    shape: [i64; MAX_DIMS],
    strides: [i64; MAX_DIMS], // in elements
    contiguous: bool,
    device: (sys::gw_device_type, i32), // kind and number
}

impl Layout {
    fn new(data: *mut u8, len: usize, dtype: DType, shape: &[usize]) -> Result<Layout> {
        let count = shape.iter().try_fold(1usize, |count, dim| count.checked_mul(*dim));
        if count != Some(len) {
            let needed = count.map_or("more than there can be".to_owned(), |count| count.to_string());
            return Err(Error::argument(format!(
                "values has {len} elements, shape {shape:?} needs {needed}"
            )));
        }
        let mut strides = vec![1usize; shape.len()];
        for d in (1..shape.len()).rev() {
            strides[d - 1] = strides[d].saturating_mul(shape[d].max(1));
        }
        Layout::strided(data, len, dtype, shape, &strides)
    }

    /// Every element must lie within the `len` elements from `data` on.
    fn strided(
        data: *mut u8,
        len: usize,
        dtype: DType,
        shape: &[usize],
        strides: &[usize],
    ) -> Result<Layout> {
        let ndim = shape.len();
        if ndim > MAX_DIMS || strides.len() != ndim {
            let steps = strides.len();
            return Err(Error::argument(format!(
                "shape has {ndim} dims, at most {MAX_DIMS}, and strides has {steps}"
            )));
        }
        let reach = shape.iter().zip(strides).try_fold(0usize, |reach, (dim, stride)| {
            reach.checked_add(dim.saturating_sub(1).checked_mul(*stride)?)
        });
        let empty = shape.contains(&0);
        if !empty && !matches!(reach, Some(reach) if reach < len) {
            return Err(Error::argument(format!(
                "values has {len} elements, too few for shape {shape:?} with strides {strides:?}"
            )));
        }
        let mut layout = Layout {
            name: Name("values", None),
            data,
            dtype,
            ndim,
            shape: [0; MAX_DIMS],
            strides: [0; MAX_DIMS],
            contiguous: true,
            device: (sys::GW_DEVICE_CPU, 0),
        };
        let mut step = 1;
        for d in (0..ndim).rev() {
            layout.shape[d] = shape[d] as i64;
            layout.strides[d] = strides[d] as i64;
            layout.contiguous &= shape[d] <= 1 || strides[d] == step;
            step = step.saturating_mul(shape[d]);
        }
        layout.contiguous |= empty;
        Ok(layout)
    }

    /// Copies shape and strides out of a view of the library.
    ///
    /// # Safety
    /// `raw` is a view that the library has just filled in.
    unsafe fn from_raw(raw: &sys::gw_view, name: Name) -> Layout {
        let ndim = (raw.ndim.max(0) as usize).min(MAX_DIMS);
        let data = raw.data.cast::<u8>();
        let data = if data.is_null() { data } else { data.add(raw.byte_offset as usize) };
        let mut layout = Layout {
            name,
            data,
            dtype: DType(raw.dtype),
            ndim,
            shape: [0; MAX_DIMS],
            strides: [0; MAX_DIMS],
            contiguous: true,
            device: (raw.device_type, raw.device_id),
        };
        let mut step = 1;
        for d in (0..ndim).rev() {
            layout.shape[d] = *raw.shape.add(d);
            layout.strides[d] = if raw.strides.is_null() { step } else { *raw.strides.add(d) };
            layout.contiguous &= layout.shape[d] <= 1 || layout.strides[d] == step;
            step *= layout.shape[d];
        }
        layout.contiguous |= layout.count() == 0;
        layout
    }

    fn count(&self) -> usize {
        self.shape[..self.ndim].iter().map(|dim| *dim as usize).product()
    }

    /// The pointers are good as long as `self` stays where it is.
    fn raw(&self) -> sys::gw_view {
        sys::gw_view {
            data: self.data.cast::<c_void>(),
            device_type: self.device.0,
            device_id: self.device.1,
            ndim: self.ndim as i32,
            dtype: self.dtype.0,
            shape: self.shape.as_ptr(),
            strides: if self.contiguous { std::ptr::null() } else { self.strides.as_ptr() },
            byte_offset: 0,
        }
    }

    /// Address and number of elements, for a slice of `T`.
    fn elements<T: Element>(&self) -> Result<(*mut T, usize)> {
        let data = self.typed()?;
        if !self.contiguous {
            return Err(Error::argument(format!(
                "{} is not contiguous: {self:?}; Tensor::copy makes it so",
                self.name
            )));
        }
        Ok((data, self.count()))
    }

    /// The address of elements of `T` that lie as the strides say. It dangles where there is no element.
    fn typed<T: Element>(&self) -> Result<*mut T> {
        let (name, align) = (self.name, std::mem::align_of::<T>());
        if self.dtype != T::DTYPE {
            let text = format!("{name} has elements of {}, not of {}", self.dtype, T::DTYPE);
            return Err(Error::argument(text));
        }
        if self.device.0 != sys::GW_DEVICE_CPU {
            return Err(Error::argument(format!(
                "{name} lies on GPU {}: Tensor::to_host copies it",
                self.device.1
            )));
        }
        if self.count() == 0 {
            return Ok(std::ptr::NonNull::dangling().as_ptr());
        }
        if self.data as usize % align != 0 {
            let text = format!("{name} is not aligned: {:?} is no multiple of {align}", self.data);
            return Err(Error::argument(text));
        }
        Ok(self.data.cast())
    }
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.dtype, &self.shape[..self.ndim])?;
        if self.contiguous {
            return Ok(());
        }
        write!(f, " with strides {:?}", &self.strides[..self.ndim])
    }
}

/// A borrowed tensor, to read. Shapes are in C order. Views of a Rust slice are checked to lie within it.
///
/// ```compile_fail,E0505
/// let values = vec![0f32; 4];
/// let view = gangway::View::new(&values, &[2, 2]).unwrap();
/// drop(values); // borrowed by the view
/// println!("{view:?}");
/// ```
#[derive(Clone, Copy)]
pub struct View<'a> {
    layout: Layout,
    borrowed: PhantomData<&'a [u8]>,
}

/// A borrowed tensor, to read and write.
pub struct ViewMut<'a> {
    layout: Layout,
    borrowed: PhantomData<&'a mut [u8]>,
}

// A view is a slice with a shape.
unsafe impl Send for View<'_> {}
unsafe impl Sync for View<'_> {}
unsafe impl Send for ViewMut<'_> {}
unsafe impl Sync for ViewMut<'_> {}

macro_rules! facts {
    ($name:ident) => {
        impl $name<'_> {
            pub fn dtype(&self) -> DType {
                self.layout.dtype
            }

            pub fn shape(&self) -> &[i64] {
                &self.layout.shape[..self.layout.ndim]
            }

            /// In elements.
            pub fn strides(&self) -> &[i64] {
                &self.layout.strides[..self.layout.ndim]
            }

            /// Number of elements.
            pub fn count(&self) -> usize {
                self.layout.count()
            }

            /// Of elements of `T` that lie as the strides say.
            #[cfg(feature = "ndarray")]
            pub(crate) fn address<T: Element>(&self) -> Result<*mut T> {
                self.layout.typed()
            }

            pub(crate) fn is_null(&self) -> bool {
                self.layout.data.is_null()
            }

            /// # Safety
            /// `raw` was filled in by the library and what it shows lives (and, to write, is ours alone) as
            /// long as the view.
            pub(crate) unsafe fn from_raw(raw: &sys::gw_view, name: Name) -> Self {
                $name { layout: Layout::from_raw(raw, name), borrowed: PhantomData }
            }
        }

        impl fmt::Debug for $name<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.layout.fmt(f)
            }
        }
    };
}
facts!(View);
facts!(ViewMut);

impl<'a> View<'a> {
    /// Row-major; `shape` is of as many elements as `values` has.
    ///
    /// # Errors
    /// `InvalidArgument`: `values` has another number of elements than `shape`, or there are more than 8
    /// dims.
    pub fn new<T: Element>(values: &'a [T], shape: &[usize]) -> Result<View<'a>> {
        let layout = Layout::new(values.as_ptr() as *mut u8, values.len(), T::DTYPE, shape)?;
        Ok(View { layout, borrowed: PhantomData })
    }

    /// Element `[i, j, ...]` is `values[i * strides[0] + j * strides[1] + ...]`.
    ///
    /// # Errors
    /// `InvalidArgument`: an element lies outside of `values`, there are more than 8 dims, or not as many
    /// strides.
    pub fn strided<T: Element>(values: &'a [T], shape: &[usize], strides: &[usize]) -> Result<View<'a>> {
        let layout = Layout::strided(values.as_ptr() as *mut u8, values.len(), T::DTYPE, shape, strides)?;
        Ok(View { layout, borrowed: PhantomData })
    }

    /// # Safety
    /// The elements that shape and strides reach from `data` on are borrowed for `'a`.
    #[cfg(feature = "ndarray")]
    pub(crate) unsafe fn of_parts<T: Element>(
        data: *const T,
        shape: &[usize],
        strides: &[usize],
    ) -> Result<View<'a>> {
        let layout = Layout::strided(data as *mut u8, usize::MAX, T::DTYPE, shape, strides)?;
        Ok(View { layout, borrowed: PhantomData })
    }

    /// The elements, when they are contiguous and of type `T`.
    ///
    /// # Errors
    /// `InvalidArgument`: the elements are of another type, lie on a GPU, or are not contiguous.
    pub fn slice<T: Element>(&self) -> Result<&'a [T]> {
        let (data, count) = self.layout.elements::<T>()?;
        Ok(unsafe { std::slice::from_raw_parts(data, count) })
    }
}

impl<'a> ViewMut<'a> {
    /// Row-major; `shape` is of as many elements as `values` has.
    ///
    /// # Errors
    /// `InvalidArgument`: `values` has another number of elements than `shape`, or there are more than 8
    /// dims.
    pub fn new<T: Element>(values: &'a mut [T], shape: &[usize]) -> Result<ViewMut<'a>> {
        let layout = Layout::new(values.as_mut_ptr().cast(), values.len(), T::DTYPE, shape)?;
        Ok(ViewMut { layout, borrowed: PhantomData })
    }

    /// The elements, when they are contiguous and of type `T`.
    ///
    /// # Errors
    /// `InvalidArgument`: the elements are of another type, lie on a GPU, or are not contiguous.
    pub fn slice<T: Element>(&self) -> Result<&[T]> {
        let (data, count) = self.layout.elements::<T>()?;
        Ok(unsafe { std::slice::from_raw_parts(data, count) })
    }

    /// The elements, when they are contiguous and of type `T`.
    ///
    /// # Errors
    /// `InvalidArgument`: the elements are of another type, lie on a GPU, or are not contiguous.
    pub fn slice_mut<T: Element>(&mut self) -> Result<&mut [T]> {
        let (data, count) = self.layout.elements::<T>()?;
        Ok(unsafe { std::slice::from_raw_parts_mut(data, count) })
    }

    pub(crate) fn reborrow(&self) -> View<'_> {
        View { layout: self.layout, borrowed: PhantomData }
    }

    pub(crate) fn raw_mut(&mut self) -> sys::gw_view {
        self.layout.raw()
    }
}

/// As the library reads them; the pointers are good as long as `views` stays where it is.
pub(crate) fn raw_views(views: &[View<'_>]) -> Vec<sys::gw_view> {
    views.iter().map(|view| view.layout.raw()).collect()
}

pub(crate) fn raw_view(view: &View<'_>) -> sys::gw_view {
    view.layout.raw()
}

/// A view without data: a gradient that is zero.
pub(crate) fn null_view() -> sys::gw_view {
    sys::gw_view::default()
}
