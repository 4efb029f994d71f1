use crate::callback::{free_box, run};
use crate::element::{DType, Element};
use crate::error::{borrowed_text, check, made, Error, Result};
use crate::optim::Optimizer;
use crate::options::{c_text, c_texts, initialised, open_enum, Field};
use crate::tensor::Tensor;
use crate::view::{Name, View};
use gangway_sys as sys;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::os::raw::c_void;
use std::ptr::NonNull;

open_enum! {
    Part {
        /// Own rows of the master.
        Value = GW_PART_VALUE,
        /// Own rows of the gradient.
        Gradient = GW_PART_GRADIENT,
        /// While unsharded.
        FullValue = GW_PART_FULL_VALUE,
        /// While unsharded.
        FullGradient = GW_PART_FULL_GRADIENT,
    }
}

/// Name, layout, shape and dtype of a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterInfo {
    /// Whole, like `model.layers.0.mlp.up_proj.weight`.
    pub name: String,
    /// Like `dp_shard: Shard(0)`.
    pub layout: String,
    /// Global.
    pub dims: Vec<i64>,
    /// Of the master.
    pub dtype: DType,
    pub is_buffer: bool,
    pub trainable: bool,
    /// Own rows of dim 0.
    pub rows: Range<i64>,
}

/// One parameter of a model, which it borrows: the model cannot step while views of it live.
///
/// ```compile_fail,E0502
/// # fn main() -> gangway::Result<()> {
/// let mut model = gangway::Linear::new(2, 2, false)?;
/// model.materialize(None, 0, gangway::DType::F32)?;
/// let mut opt = gangway::AdamW::new(&model, &Default::default())?;
/// let weight = model.parameter("weight")?;
/// let view = weight.view(gangway::Part::Value)?;
/// opt.step(&mut model, &Default::default())?; // writes what the view shows
/// println!("{view:?}");
/// # Ok(()) }
/// ```
pub struct Parameter<'m> {
    handle: NonNull<sys::gw_parameter>,
    model: PhantomData<&'m crate::Module>,
}

impl Parameter<'_> {
    pub(crate) fn owned(status: sys::gw_status, handle: *mut sys::gw_parameter) -> Result<Self> {
        Ok(Parameter { handle: made(status, handle)?, model: PhantomData })
    }

    pub(crate) fn raw(&self) -> *mut sys::gw_parameter {
        self.handle.as_ptr()
    }

    /// # Errors
    /// Only what any call may return, see [`Code`](crate::Code).
    pub fn info(&self) -> Result<ParameterInfo> {
        let mut raw = initialised!(gw_parameter_info, gw_parameter_info_init);
        check(unsafe { sys::gw_parameter_describe(self.raw(), &mut raw) })?;
        Ok(ParameterInfo {
            name: borrowed_text(raw.name),
            layout: borrowed_text(raw.layout),
            dims: raw.dims[..(raw.ndim.max(0) as usize).min(raw.dims.len())].to_vec(),
            dtype: DType(raw.dtype),
            is_buffer: raw.is_buffer != 0,
            trainable: raw.trainable != 0,
            rows: raw.first_row..raw.last_row,
        })
    }

    /// Local. What this rank holds.
    ///
    /// ```compile_fail,E0597
    /// # fn main() -> gangway::Result<()> {
    /// let mut model = gangway::Linear::new(2, 2, false)?;
    /// model.materialize(None, 0, gangway::DType::F32)?;
    /// let view = {
    ///     let weight = model.parameter("weight")?;
    ///     weight.view(gangway::Part::Value)? // borrowed from `weight`
    /// };
    /// println!("{view:?}");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `InvalidState`: a full part while the parameter is sharded, the gradient of a frozen parameter, or a
    /// model without memory.
    pub fn view(&self, part: Part) -> Result<View<'_>> {
        let mut raw = sys::gw_view::default();
        check(unsafe { sys::gw_parameter_view(self.raw(), part.write(), &mut raw) })?;
        Ok(unsafe { View::from_raw(&raw, Name("parameter", None)) })
    }

    /// Local. Own rows of an optimizer's state: "exp_avg", "exp_avg_sq", "momentum".
    ///
    /// # Errors
    /// `NotFound`: the optimizer has no such state for the parameter.
    pub fn state<'a>(&'a self, optimizer: &'a Optimizer, name: &str) -> Result<View<'a>> {
        let name = c_text(name, "name")?;
        let mut raw = sys::gw_view::default();
        check(unsafe { sys::gw_parameter_state(self.raw(), optimizer.raw(), name.as_ptr(), &mut raw) })?;
        Ok(unsafe { View::from_raw(&raw, Name("state", None)) })
    }

    /// Local. A DLPack export of what this rank holds, for another library. It keeps its memory, also when
    /// parameter and model are gone; its values follow the parameter.
    ///
    /// # Errors
    /// As [`Parameter::view`].
    pub fn export(&self, part: Part) -> Result<NonNull<sys::DLManagedTensorVersioned>> {
        let mut tensor = std::ptr::null_mut();
        let status = unsafe { sys::gw_parameter_tensor(self.raw(), part.write(), &mut tensor) };
        Tensor::owned(status, tensor)?.to_dlpack()
    }

    /// Local. The same of an optimizer's state.
    ///
    /// # Errors
    /// As [`Parameter::state`].
    pub fn export_state(
        &self,
        optimizer: &Optimizer,
        name: &str,
    ) -> Result<NonNull<sys::DLManagedTensorVersioned>> {
        let name = c_text(name, "name")?;
        let mut tensor = std::ptr::null_mut();
        let (from, name) = (optimizer.raw(), name.as_ptr());
        let status = unsafe { sys::gw_parameter_state_tensor(self.raw(), from, name, &mut tensor) };
        Tensor::owned(status, tensor)?.to_dlpack()
    }

    /// Collective. The whole value on every rank, in the master's dtype.
    ///
    /// # Errors
    /// - `InvalidState`: a model without memory.
    /// - What any collective fails by.
    pub fn gather(&self) -> Result<Tensor> {
        let mut tensor = std::ptr::null_mut();
        let status = unsafe { sys::gw_parameter_gather(self.raw(), std::ptr::null_mut(), &mut tensor) };
        Tensor::owned(status, tensor)
    }

    /// Collective. The whole gradient on every rank.
    ///
    /// # Errors
    /// - `InvalidState`: a frozen parameter, or a model without memory.
    /// - What any collective fails by.
    pub fn gather_gradient(&self) -> Result<Tensor> {
        let mut tensor = std::ptr::null_mut();
        let status =
            unsafe { sys::gw_parameter_gather_gradient(self.raw(), std::ptr::null_mut(), &mut tensor) };
        Tensor::owned(status, tensor)
    }
}

impl Drop for Parameter<'_> {
    fn drop(&mut self) {
        unsafe { sys::gw_parameter_release(self.raw()) }
    }
}

impl fmt::Debug for Parameter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.info() {
            Ok(info) => write!(f, "{} {} {:?} ({})", info.name, info.dtype, info.dims, info.layout),
            Err(error) => write!(f, "parameter ({error})"),
        }
    }
}

/// First and last row, address, number of elements, and their type.
type Fill = Box<dyn Fn(Range<usize>, *mut u8, usize, DType) -> Result<()> + Send>;

enum Initial {
    Normal(Option<f64>),
    Zeros,
    Ones,
    Fill(Fill),
}

impl fmt::Debug for Initial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Initial::Normal(deviation) => f.debug_tuple("Normal").field(deviation).finish(),
            Initial::Zeros => f.write_str("Zeros"),
            Initial::Ones => f.write_str("Ones"),
            Initial::Fill(_) => f.write_str("Fill"),
        }
    }
}

/// One parameter of a [`crate::Custom`] module or a [`crate::ShardGroup`]; without more it is f32 with normal
/// first values.
#[derive(Debug)]
pub struct ParameterOptions {
    name: String,
    dims: Vec<usize>,
    dtype: DType,
    frozen: bool,
    buffer: bool,
    aliases: Vec<String>,
    initial: Initial,
}

impl ParameterOptions {
    /// `dims` is the global shape; a scalar is `[1]`.
    pub fn new(name: &str, dims: &[usize]) -> ParameterOptions {
        let (name, dims) = (name.to_owned(), dims.to_vec());
        ParameterOptions {
            name,
            dims,
            dtype: DType::NONE,
            frozen: false,
            buffer: false,
            aliases: Vec::new(),
            initial: Initial::Normal(None),
        }
    }

    /// Dtype of the master, in a shard group; custom modules take the model's.
    pub fn dtype(mut self, dtype: DType) -> ParameterOptions {
        self.dtype = dtype;
        self
    }

    /// It gets no gradient.
    pub fn frozen(mut self) -> ParameterOptions {
        self.frozen = true;
        self
    }

    /// In a shard group: a buffer, such as a running mean. It is frozen, and files keep it in its own dtype.
    pub fn buffer(mut self) -> ParameterOptions {
        self.buffer = true;
        self
    }

    /// In a shard group: one more name of the parameter, which another module of the caller's shares.
    pub fn alias(mut self, name: &str) -> ParameterOptions {
        self.aliases.push(name.to_owned());
        self
    }

    /// First values of a normal distribution around 0.
    pub fn normal(mut self, deviation: f64) -> ParameterOptions {
        self.initial = Initial::Normal(Some(deviation));
        self
    }

    /// First values are 0.
    pub fn zeros(mut self) -> ParameterOptions {
        self.initial = Initial::Zeros;
        self
    }

    /// First values are 1.
    pub fn ones(mut self) -> ParameterOptions {
        self.initial = Initial::Ones;
        self
    }

    /// First values, row-major and as many as the dims say, equal on every rank; they are copied. `T` is as in
    /// [`ParameterOptions::fill`].
    pub fn values<T: Element>(self, values: &[T]) -> ParameterOptions {
        let (name, dims, values) = (self.name.clone(), self.dims.clone(), values.to_vec());
        let (given, wanted) = (values.len(), dims.iter().product::<usize>());
        self.fill(move |rows, out| {
            if given != wanted {
                let text =
                    format!("parameter {name}: values has {given} elements, dims {dims:?} need {wanted}");
                return Err(Error::argument(text));
            }
            let row: usize = dims.iter().skip(1).product();
            out.copy_from_slice(&values[rows.start * row..rows.end * row]);
            Ok(())
        })
    }

    /// `fill` writes the given rows of dim 0, row-major. `T` is the master's type: in a shard group it becomes
    /// so, in a custom module any other is an error.
    pub fn fill<T: Element>(
        mut self,
        fill: impl Fn(Range<usize>, &mut [T]) -> Result<()> + Send + 'static,
    ) -> ParameterOptions {
        let name = self.name.clone();
        self.dtype = T::DTYPE;
        self.initial = Initial::Fill(Box::new(move |rows, out, count, dtype| {
            if dtype != T::DTYPE {
                let text = format!("parameter {name}: its master is {dtype}, fill writes {}", T::DTYPE);
                return Err(Error::argument(text));
            }
            let out = if count == 0 { NonNull::dangling().as_ptr() } else { out.cast::<T>() };
            fill(rows, unsafe { std::slice::from_raw_parts_mut(out, count) })
        }));
        self
    }
}

unsafe extern "C" fn fill(
    user: *mut c_void,
    first: i64,
    last: i64,
    out: *mut c_void,
    count: usize,
    dtype: sys::gw_dtype,
) -> sys::gw_status {
    run(|| (*user.cast::<Fill>())(first as usize..last as usize, out.cast(), count, DType(dtype)))
}

fn raw_initial(initial: Initial) -> sys::gw_init_options {
    let mut raw = initialised!(gw_init_options, gw_init_options_init);
    match initial {
        Initial::Normal(deviation) => {
            raw.kind = sys::GW_INIT_NORMAL;
            raw.deviation = deviation.unwrap_or(raw.deviation);
        }
        Initial::Zeros => raw.kind = sys::GW_INIT_ZEROS,
        Initial::Ones => raw.kind = sys::GW_INIT_ONES,
        Initial::Fill(closure) => {
            raw.kind = sys::GW_INIT_FILL;
            raw.fill = Some(fill);
            raw.user = Box::into_raw(Box::new(closure)).cast();
            raw.free_user = Some(free_box::<Fill>);
        }
    }
    raw
}

/// Calls with the C structs; the call takes over the initialisers, also when it fails.
pub(crate) fn with_raw<R>(
    parameters: Vec<ParameterOptions>,
    call: impl FnOnce(*const sys::gw_parameter_options, usize) -> R,
) -> Result<R> {
    let names = c_texts(parameters.iter().map(|parameter| parameter.name.as_str()), "parameter name")?;
    let mut aliases = Vec::with_capacity(parameters.len()); // the texts, and the pointers to them
    for parameter in &parameters {
        let texts = c_texts(parameter.aliases.iter().map(String::as_str), "alias")?;
        let pointers: Vec<_> = texts.iter().map(|text| text.as_ptr()).collect();
        aliases.push((texts, pointers));
    }
    let mut raw = Vec::with_capacity(parameters.len());
    for ((parameter, name), (_, pointers)) in parameters.iter().zip(&names).zip(&aliases) {
        let mut one = initialised!(gw_parameter_options, gw_parameter_options_init);
        if parameter.dims.len() > one.dims.len() {
            let (name, dims) = (&parameter.name, parameter.dims.len());
            return Err(Error::argument(format!(
                "parameter {name} has {dims} dims, at most {}",
                one.dims.len()
            )));
        }
        one.name = name.as_ptr();
        one.ndim = parameter.dims.len() as i32;
        one.dtype = parameter.dtype.0;
        one.frozen = parameter.frozen as i32;
        one.is_buffer = parameter.buffer as i32;
        if !pointers.is_empty() {
            one.aliases = pointers.as_ptr();
            one.alias_count = pointers.len();
        }
        for (place, dim) in one.dims.iter_mut().zip(&parameter.dims) {
            *place = i64::try_from(*dim).unwrap_or(i64::MAX);
        }
        raw.push(one);
    }
    let initial: Vec<_> = parameters.into_iter().map(|parameter| raw_initial(parameter.initial)).collect();
    for (one, initial) in raw.iter_mut().zip(&initial) {
        one.initializer = initial;
    }
    Ok(call(raw.as_ptr(), raw.len()))
}
