use crate::array::Views;
use crate::element::DType;
use crate::error::{check, made, Result};
use crate::frame::Frame;
use crate::group::ShardGroup;
use crate::mesh::Gangs;
use crate::options::{c_text, options, path_text, results};
use crate::parallel::{ContextMethod, ParallelOptions, Recompute, ShardOptions, TensorParallelOptions};
use crate::parameter::Parameter;
use crate::tensor::Tensor;
use crate::view::raw_views;
use gangway_sys as sys;
use std::fmt;
use std::path::Path;
use std::ptr::NonNull;

options! {
    #[derive(Copy)]
    SaveOptions = gw_save_options, gw_save_options_init {
        /// `DType::NONE`: the master's.
        dtype: DType,
        /// Of a file of weights; above it there are several, with an index. 0: no limit.
        max_file_bytes: i64,
    }
}

options! {
    #[derive(Copy)]
    LoadOptions = gw_load_options, gw_load_options_init {
        /// Tensors that the model does not have are no error.
        ignore_extra: bool,
        /// A folder's `config.json` may describe another model.
        ignore_config: bool,
    }
}

results! {
    /// Bytes that a model takes on this rank. `activations`, `gradients` and `temporaries` are peaks.
    MemoryUse = gw_memory_use, gw_memory_use_init {
        master: u64,
        region_rows: u64,
        gradient_shards: u64,
        gathered: u64,
        full_gradients: u64,
        activations: u64,
        gradients: u64,
        temporaries: u64,
        /// This rank's private rows in the compute dtype.
        copies: u64,
        /// State of the optimizers that this model has at present.
        optimizer: u64,
        /// Host memory that is in none of the above: what `cpu_offload` keeps there, the peak of the
        /// activations that `activation_offload` keeps there, and the copies of checkpoints.
        host: u64,
    }
}

/// What a model is made of, with Hugging Face's names and shapes. A module describes until
/// [`Module::parallelize`] (or [`Module::materialize`]) gives it memory. One thread at a time.
pub struct Module {
    handle: NonNull<sys::gw_module>,
    pub(crate) groups: Vec<ShardGroup>,
}

// The library wants one thread at a time, not always the same; closures in it are Send.
unsafe impl Send for Module {}

/// Null for one rank.
pub(crate) fn raw_gangs<'g>(gangs: impl Into<Option<&'g Gangs>>) -> *mut sys::gw_gangs {
    gangs.into().map_or(std::ptr::null_mut(), Gangs::raw)
}

impl Module {
    pub(crate) fn owned(status: sys::gw_status, handle: *mut sys::gw_module) -> Result<Module> {
        Ok(Module { handle: made(status, handle)?, groups: Vec::new() })
    }

    /// Local. A materialised model of these groups, for optimizer, clip, load and save; see
    /// [`Module::group`].
    ///
    /// # Errors
    /// `InvalidArgument`: there is no group, or groups are of different gangs.
    pub fn from_groups(groups: Vec<ShardGroup>) -> Result<Module> {
        let handles: Vec<_> = groups.iter().map(ShardGroup::raw).collect();
        let mut handle = std::ptr::null_mut();
        let status = unsafe { sys::gw_module_from_groups(handles.as_ptr(), handles.len(), &mut handle) };
        Ok(Module { handle: made(status, handle)?, groups })
    }

    pub(crate) fn raw(&self) -> *mut sys::gw_module {
        self.handle.as_ptr()
    }

    /// Collective. Checks all, then recomputation, parameter groups, memory and first values; once, before the
    /// optimizer.
    ///
    /// # Errors
    /// - `NotSupported`: pp over 1 for a model that is neither a decoder nor a sequential.
    /// - `InvalidArgument` names the option, or the row of the plan.
    /// - `NotFound`: no module matches a row.
    /// - `InvalidState`: the call is made a second time, or after a step that it does itself.
    /// - `Mismatch`, on every rank and with both values: ranks have different models, options or seeds.
    ///
    /// A refusal leaves model and gangs as they were.
    pub fn parallelize<'g>(
        &mut self,
        gangs: impl Into<Option<&'g Gangs>>,
        options: &ParallelOptions,
    ) -> Result<()> {
        let gangs = raw_gangs(gangs);
        options.with_raw(|raw| check(unsafe { sys::gw_parallelize(self.raw(), gangs, raw) }))?
    }

    /// Collective. Each match of `pattern` (whole paths; '*' does not match a dot, "**" does) becomes a
    /// parameter group; "" is the root, the last. [`Module::materialize`] follows.
    ///
    /// # Errors
    /// - `NotFound`: no module matches.
    /// - `InvalidArgument` names the option, or two matches of which one is inside the other.
    /// - `InvalidState`: a module has memory or is a parameter group already, or the mesh has tp or cp and
    ///   neither [`Module::tensor_parallel`] nor [`Module::context_parallel`] was called.
    pub fn fully_shard<'g>(
        &mut self,
        pattern: &str,
        gangs: impl Into<Option<&'g Gangs>>,
        options: &ShardOptions,
    ) -> Result<()> {
        let pattern = c_text(pattern, "pattern")?;
        let gangs = raw_gangs(gangs);
        options
            .with_raw(|raw| check(unsafe { sys::gw_fully_shard(self.raw(), pattern.as_ptr(), gangs, raw) }))?
    }

    /// Collective. Plain data parallel for the whole model. [`Module::materialize`] follows.
    ///
    /// # Errors
    /// As [`Module::fully_shard`].
    pub fn replicate<'g>(
        &mut self,
        gangs: impl Into<Option<&'g Gangs>>,
        options: &ShardOptions,
    ) -> Result<()> {
        let gangs = raw_gangs(gangs);
        options.with_raw(|raw| check(unsafe { sys::gw_replicate(self.raw(), gangs, raw) }))?
    }

    /// Collective, before [`Module::recompute`], [`Module::fully_shard`] and [`Module::replicate`]. Splits
    /// modules over tp as the plan says.
    ///
    /// # Errors
    /// - `NotFound`: no module matches a row.
    /// - `InvalidArgument` names the row and what does not fit.
    /// - `InvalidState`: the call comes after [`Module::fully_shard`] or [`Module::replicate`], or is made
    ///   twice.
    /// - `NotSupported`: tp is over 1 and there is no row at all.
    pub fn tensor_parallel<'g>(
        &mut self,
        gangs: impl Into<Option<&'g Gangs>>,
        options: &TensorParallelOptions,
    ) -> Result<()> {
        let gangs = raw_gangs(gangs);
        options.with_raw(|raw| check(unsafe { sys::gw_tensor_parallel(self.raw(), gangs, raw) }))?
    }

    /// Collective, likewise. Attention runs over the parts of the sequence that the ranks of cp have.
    ///
    /// # Errors
    /// - `InvalidArgument`: a model without attention, or heads that the method cannot divide.
    /// - `InvalidState`: the call comes after [`Module::fully_shard`] or [`Module::replicate`], or is made
    ///   twice.
    pub fn context_parallel<'g>(
        &mut self,
        gangs: impl Into<Option<&'g Gangs>>,
        method: ContextMethod,
    ) -> Result<()> {
        let method = crate::options::Field::write(method);
        check(unsafe { sys::gw_context_parallel(self.raw(), raw_gangs(gangs), method) })
    }

    /// Local, before [`Module::fully_shard`].
    ///
    /// # Errors
    /// - `InvalidArgument`: an unknown kind, `every` below 1, or `ratio` outside of \[0, 1\].
    /// - `InvalidState`: the call comes after [`Module::fully_shard`], [`Module::replicate`] or
    ///   [`Module::materialize`].
    pub fn recompute(&mut self, kind: Recompute, every: i32, ratio: f64) -> Result<()> {
        let kind = crate::options::Field::write(kind);
        check(unsafe { sys::gw_recompute(self.raw(), kind, every, ratio) })
    }

    /// Collective. Gives memory and first values. `master` is F32, F64 or NONE (F32).
    ///
    /// # Errors
    /// - `InvalidState`: a second time, bound to other gangs, or a parameter in no parameter group on several
    ///   ranks.
    /// - `InvalidArgument`: the dtype.
    /// - `Mismatch`, with both values: ranks have different models, options or seeds.
    /// - `Caller`, or its own code: a closure of [`ParameterOptions::fill`](crate::ParameterOptions::fill).
    pub fn materialize<'g>(
        &mut self,
        gangs: impl Into<Option<&'g Gangs>>,
        seed: u64,
        master: DType,
    ) -> Result<()> {
        check(unsafe { sys::gw_module_materialize(self.raw(), raw_gangs(gangs), seed, master.0) })
    }

    /// Local, before memory. Parameters whose whole name matches are frozen.
    ///
    /// # Errors
    /// - `NotFound`: no parameter matches.
    /// - `InvalidState`: the gradients have memory already.
    pub fn freeze(&mut self, pattern: &str) -> Result<()> {
        let pattern = c_text(pattern, "pattern")?;
        check(unsafe { sys::gw_module_freeze(self.raw(), pattern.as_ptr()) })
    }

    /// Collective. No frame: evaluation.
    ///
    /// # Errors
    /// - `InvalidArgument`: the number, shape or dtype of the inputs, or a token or label that is outside of
    ///   the vocabulary.
    /// - `InvalidState`: the frame has had a forward already, or the model has no memory yet.
    /// - `Mismatch`: ranks differ in giving a frame, in `no_sync`, or in number or dtypes of inputs.
    /// - A failure while the model runs (`Caller`, `PeerLost` and so on) aborts every gang of a model of
    ///   several ranks.
    pub fn forward<'v>(&mut self, inputs: impl Views<'v>, frame: Option<&mut Frame>) -> Result<Vec<Tensor>> {
        let views = inputs.views();
        let raw = raw_views(&views);
        let frame = frame.map_or(std::ptr::null_mut(), |frame| frame.raw());
        let outputs = tensors(|out, capacity, count| unsafe {
            let stream = std::ptr::null_mut();
            sys::gw_module_forward(self.raw(), raw.as_ptr(), raw.len(), frame, stream, out, capacity, count)
        })?;
        Ok(outputs.into_iter().flatten().collect())
    }

    /// Collective. Gradients of the outputs in (`&()` for a loss), of the inputs out; adds the sum over data
    /// ranks to the local gradients. The frame is reset.
    ///
    /// # Errors
    /// - `InvalidArgument`: more gradients than outputs, or the shape or dtype of one.
    /// - `InvalidState`: the frame has had no forward.
    /// - `Mismatch`: ranks differ in `no_sync`.
    /// - A failure while the model runs (`Caller`, `PeerLost` and so on) aborts every gang of a model of
    ///   several ranks.
    pub fn backward<'v>(
        &mut self,
        output_grads: impl Views<'v>,
        frame: &mut Frame,
    ) -> Result<Vec<Option<Tensor>>> {
        let views = output_grads.views();
        let raw = raw_views(&views);
        tensors(|out, capacity, count| unsafe {
            let (frame, stream) = (frame.raw(), std::ptr::null_mut());
            sys::gw_module_backward(self.raw(), raw.as_ptr(), raw.len(), frame, stream, out, capacity, count)
        })
    }

    /// Local. True: backward adds up without reducing, until the first backward after false.
    ///
    /// # Errors
    /// `InvalidState`: the model has no memory yet.
    pub fn set_no_sync(&mut self, no_sync: bool) -> Result<()> {
        check(unsafe { sys::gw_module_set_no_sync(self.raw(), no_sync as i32) })
    }

    /// Collective. Scales the local gradients by min(1, max_norm / (norm + 1e-6)) and gives the norm before
    /// it. `p`: over 0 and at most 64, or infinity for the largest.
    ///
    /// # Errors
    /// - `InvalidArgument`: `max_norm` or `p` is outside of its range.
    /// - `InvalidState`: a model without memory.
    /// - `Mismatch`: ranks have different ones.
    pub fn clip_grad_norm(&mut self, max_norm: f64, p: f64) -> Result<f64> {
        let mut norm = 0.0;
        let stream = std::ptr::null_mut();
        check(unsafe { sys::gw_clip_grad_norm(self.raw(), max_norm, p, stream, &mut norm) })?;
        Ok(norm)
    }

    /// Local. Empties the local gradients.
    ///
    /// # Errors
    /// `InvalidState`: the model has no memory yet.
    pub fn zero_grad(&mut self) -> Result<()> {
        check(unsafe { sys::gw_zero_grad(self.raw(), std::ptr::null_mut()) })
    }

    /// Elements of all parameters together, over all ranks; buffers do not count.
    ///
    /// # Errors
    /// Only what any call may return, see [`Code`](crate::Code).
    pub fn num_parameters(&self) -> Result<usize> {
        let mut count = 0;
        for parameter in self.parameters()? {
            let info = parameter.info()?;
            count += if info.is_buffer { 0 } else { info.dims.iter().product::<i64>() as usize };
        }
        Ok(count)
    }

    /// Number of parameters; tied ones count once.
    ///
    /// # Errors
    /// Only what any call may return, see [`Code`](crate::Code).
    pub fn parameter_count(&self) -> Result<usize> {
        let mut count = 0;
        check(unsafe { sys::gw_module_parameter_count(self.raw(), &mut count) })?;
        Ok(count)
    }

    /// By its index in the order of all.
    ///
    /// # Errors
    /// `InvalidArgument`: `index` is not below the number of parameters.
    pub fn parameter_at(&self, index: usize) -> Result<Parameter<'_>> {
        let mut handle = std::ptr::null_mut();
        let status = unsafe { sys::gw_module_parameter(self.raw(), index, &mut handle) };
        Parameter::owned(status, handle)
    }

    /// By whole name, aliases of tied parameters too.
    ///
    /// ```compile_fail,E0505
    /// # fn main() -> gangway::Result<()> {
    /// let mut model = gangway::Linear::new(2, 2, false)?;
    /// model.materialize(None, 0, gangway::DType::F32)?;
    /// let weight = model.parameter("weight")?;
    /// drop(model); // borrowed by the parameter
    /// println!("{:?}", weight.info());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `NotFound`: no parameter has the name.
    pub fn parameter(&self, name: &str) -> Result<Parameter<'_>> {
        let name = c_text(name, "name")?;
        let mut handle = std::ptr::null_mut();
        let status = unsafe { sys::gw_module_find_parameter(self.raw(), name.as_ptr(), &mut handle) };
        Parameter::owned(status, handle)
    }

    /// All parameters, in their order.
    ///
    /// # Errors
    /// Only what any call may return, see [`Code`](crate::Code).
    pub fn parameters(&self) -> Result<Vec<Parameter<'_>>> {
        (0..self.parameter_count()?).map(|index| self.parameter_at(index)).collect()
    }

    /// Collective. New values of a parameter (f64, f32, bf16 or f16), of the global shape or of this rank's rows
    /// alone.
    ///
    /// # Errors
    /// - `NotFound`: no parameter has the name.
    /// - `InvalidArgument`, on every rank: the shape or dtype that a rank gives.
    /// - `InvalidState`: a forward awaits its backward, a parameter group is unsharded, or an update has
    ///   begun and not ended.
    pub fn assign(&mut self, name: &str, values: &impl crate::AsView) -> Result<()> {
        let view = values.as_view();
        let parameter = self.parameter(name)?;
        let raw = crate::view::raw_view(&view);
        check(unsafe { sys::gw_parameter_assign(parameter.raw(), &raw, std::ptr::null_mut()) })
    }

    /// Bytes on this rank.
    ///
    /// # Errors
    /// `InvalidState`: the model has no memory yet.
    pub fn memory(&self) -> Result<MemoryUse> {
        MemoryUse::filled(|raw| unsafe { sys::gw_module_memory(self.raw(), raw) })
    }

    /// Collective. Compares the values of ranks that must hold the same; `Code::Mismatch` names the first element that
    /// differs, with both values and ranks. `parallelize` and `load` do so by themselves.
    ///
    /// # Errors
    /// - `Mismatch`, on every rank: the values of two ranks differ; the gangs work on.
    /// - `InvalidState`: a model without memory.
    pub fn check_replicas(&self) -> Result<()> {
        check(unsafe { sys::gw_module_check_replicas(self.raw(), std::ptr::null_mut()) })
    }

    /// Collective. `folder/model.safetensors` with Hugging Face's names (and `config.json` for a decoder). One
    /// commit: readers find all of the earlier checkpoint or all of the new one, whenever the save ends or is
    /// killed.
    ///
    /// # Errors
    /// As [`Module::save_with`].
    pub fn save(&self, folder: impl AsRef<Path>) -> Result<()> {
        self.save_with(folder, &SaveOptions::default())
    }

    /// # Errors
    /// - `InvalidArgument`: a dtype that is not floating, or an empty name.
    /// - `InvalidState`: a model without memory, or another save into the folder is at work.
    /// - `Io`, on every rank: a full disk, a limit on file sizes and so on.
    pub fn save_with(&self, folder: impl AsRef<Path>, options: &SaveOptions) -> Result<()> {
        let folder = path_text(folder.as_ref())?;
        check(unsafe { sys::gw_module_save(self.raw(), folder.as_ptr(), &options.raw()) })
    }

    /// Collective. A file or a folder of f64, f32, bf16 or f16, on any mesh. A missing one has
    /// [`Error::io_kind`](crate::Error::io_kind) `NotFound`.
    ///
    /// # Errors
    /// As [`Module::load_with`].
    pub fn load(&mut self, path: impl AsRef<Path>) -> Result<()> {
        self.load_with(path, &LoadOptions::default())
    }

    /// # Errors
    /// - `NotFound`: a parameter is missing in the files.
    /// - `InvalidArgument`, with both values: a shape or dtype, a tensor that the model has no place for, two
    ///   values for a tied parameter, or another `config.json`.
    /// - `Mismatch`: ranks opened different files.
    /// - `Corrupt`, `NotSupported`: what a file says.
    /// - `Io`: a file is missing. Once reading has begun, `Io` leaves some values new and some old; the gangs
    ///   work on.
    pub fn load_with(&mut self, path: impl AsRef<Path>, options: &LoadOptions) -> Result<()> {
        let path = path_text(path.as_ref())?;
        check(unsafe { sys::gw_module_load(self.raw(), path.as_ptr(), &options.raw()) })
    }
}

/// Asks for as many tensors as there are.
fn tensors(
    mut call: impl FnMut(*mut *mut sys::gw_tensor, usize, *mut usize) -> sys::gw_status,
) -> Result<Vec<Option<Tensor>>> {
    let mut handles = [std::ptr::null_mut(); 16];
    let mut count = 0;
    let status = call(handles.as_mut_ptr(), handles.len(), &mut count);
    let found: Vec<_> = handles.iter().take(count).map(|handle| Tensor::from_handle(*handle)).collect();
    check(status).map(|()| found)
}

impl Drop for Module {
    fn drop(&mut self) {
        unsafe { sys::gw_module_release(self.raw()) }
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parameters() {
            Ok(parameters) => f.debug_list().entries(parameters).finish(),
            Err(error) => write!(f, "module ({error})"),
        }
    }
}
