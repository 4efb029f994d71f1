use crate::array::AsView;
use crate::error::{check, made, Error, Result};
use crate::mesh::Gangs;
use crate::module::{raw_gangs, Module};
use crate::options::{c_text, Field};
use crate::parallel::ShardOptions;
use crate::parameter::{with_raw, ParameterOptions, Part};
use crate::tensor::Tensor;
use crate::view::{raw_view, Name, View, ViewMut};
use gangway_sys as sys;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// Parameters of a program's own model, sharded as one parameter group. Made into a model by [`Module::from_groups`] and
/// used by [`Module::group`] and [`Module::groups`].
#[derive(Debug)]
pub struct ShardGroup {
    handle: NonNull<sys::gw_shard_group>,
    count: usize,
}

unsafe impl Send for ShardGroup {}

impl ShardGroup {
    /// Collective. Fills the parameters by their initialisers. No gangs: one rank.
    ///
    /// # Errors
    /// - `InvalidArgument` names the parameter or the option.
    /// - `Mismatch`: ranks differ in them.
    /// - `Caller`, or its own code: a closure of [`ParameterOptions::fill`].
    pub fn new<'g>(
        gangs: impl Into<Option<&'g Gangs>>,
        name: &str,
        parameters: Vec<ParameterOptions>,
        options: &ShardOptions,
        seed: u64,
    ) -> Result<ShardGroup> {
        let name = c_text(name, "name")?;
        let gangs = raw_gangs(gangs);
        let mut handle = std::ptr::null_mut();
        let count = parameters.len();
        let status = options.with_raw(|options| {
            with_raw(parameters, |parameters, count| unsafe {
                sys::gw_shard_group_create(
                    gangs,
                    name.as_ptr(),
                    parameters,
                    count,
                    options,
                    seed,
                    &mut handle,
                )
            })
        })??;
        Ok(ShardGroup { handle: made(status, handle)?, count })
    }

    pub(crate) fn raw(&self) -> *mut sys::gw_shard_group {
        self.handle.as_ptr()
    }
}

impl Drop for ShardGroup {
    fn drop(&mut self) {
        unsafe { sys::gw_shard_group_release(self.raw()) }
    }
}

impl Module {
    /// All groups that the model was made of, each to be used by itself; while any is in use, the model does
    /// not step. Several may be unsharded at once:
    ///
    /// ```no_run
    /// # fn main() -> gangway::Result<()> {
    /// # let mut model = gangway::Module::from_groups(vec![])?;
    /// let mut groups = model.groups();
    /// let (first, second) = groups.split_at_mut(1);
    /// first[0].unsharded(|a| {
    ///     second[0].unsharded(|b| {
    ///         println!("{:?} {:?}", a.value(0)?, b.value(0)?);
    ///         Ok(())
    ///     })
    /// })?;
    /// # Ok(()) }
    /// ```
    ///
    /// ```compile_fail,E0499
    /// # fn main() -> gangway::Result<()> {
    /// # let mut model = gangway::Module::from_groups(vec![])?;
    /// # let mut opt = gangway::AdamW::new(&model, &Default::default())?;
    /// let mut groups = model.groups();
    /// opt.step(&mut model, &Default::default())?; // writes what the groups show
    /// groups[0].reduce()?;
    /// # Ok(()) }
    /// ```
    pub fn groups(&mut self) -> Vec<Group<'_>> {
        let group =
            |group: &ShardGroup| Group { handle: group.raw(), count: group.count, model: PhantomData };
        self.groups.iter().map(group).collect()
    }

    /// One of the groups that the model was made of; while it is in use, the model does not step.
    ///
    /// # Errors
    /// `InvalidArgument`: there is no such group.
    pub fn group(&mut self, index: usize) -> Result<Group<'_>> {
        let count = self.groups.len();
        let group = self.groups().into_iter().nth(index);
        group.ok_or_else(|| Error::argument(format!("index is {index}, the model has {count} groups")))
    }
}

/// A shard group in use.
#[derive(Debug)]
pub struct Group<'m> {
    handle: *mut sys::gw_shard_group,
    count: usize,
    model: PhantomData<&'m mut Module>, // handles of one model never stand twice among its groups
}

const NO_STREAM: *mut std::os::raw::c_void = std::ptr::null_mut();

impl Group<'_> {
    /// Number of parameters.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Collective. Gathers the full values, runs `compute` on them, and gives the memory back, also when it
    /// fails. Views do not leave `compute`:
    ///
    /// ```compile_fail,E0521
    /// # fn main() -> gangway::Result<()> {
    /// # let mut model = gangway::Module::from_groups(vec![])?;
    /// let mut kept = None;
    /// model.group(0)?.unsharded(|full| {
    ///     kept = Some(full.value(0)?);
    ///     Ok(())
    /// })?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// - `InvalidState`: an update has begun and not ended.
    /// - What `compute` returns.
    /// - What any collective fails by.
    pub fn unsharded<R>(&mut self, compute: impl FnOnce(&mut Unsharded<'_>) -> Result<R>) -> Result<R> {
        check(unsafe { sys::gw_shard_group_unshard(self.handle, std::ptr::null(), NO_STREAM) })?;
        let reshard = Reshard(self.handle); // on panics too
        let result = compute(&mut Unsharded { handle: self.handle, count: self.count, group: PhantomData })?;
        std::mem::forget(reshard);
        check(unsafe { sys::gw_shard_group_reshard(self.handle, NO_STREAM) })?;
        Ok(result)
    }

    /// Collective. A stable copy of the full values, one view for each parameter.
    ///
    /// # Errors
    /// - `InvalidArgument`: the number of views, or a view whose shape or dtype does not fit or that is not
    ///   row-major.
    /// - `InvalidState`: an update has begun and not ended.
    /// - What any collective fails by.
    pub fn unshard_into(&mut self, values: &mut [ViewMut<'_>]) -> Result<()> {
        if values.len() != self.count {
            let (views, count) = (values.len(), self.count);
            return Err(Error::argument(format!("values has {views} views, the group {count} parameters")));
        }
        let raw: Vec<_> = values.iter_mut().map(ViewMut::raw_mut).collect();
        let reshard = Reshard(self.handle);
        check(unsafe { sys::gw_shard_group_unshard(self.handle, raw.as_ptr(), NO_STREAM) })?;
        std::mem::forget(reshard);
        check(unsafe { sys::gw_shard_group_reshard(self.handle, NO_STREAM) })
    }

    /// Collective. Starts to gather the full values for the next [`Group::unsharded`].
    ///
    /// # Errors
    /// `InvalidState`: an update has begun and not ended. The work has what fails later.
    pub fn prefetch(&mut self) -> Result<crate::Work<()>> {
        let mut work = std::ptr::null_mut();
        let status = unsafe { sys::gw_shard_group_unshard_async(self.handle, NO_STREAM, &mut work) };
        Ok(crate::Work::new(made(status, work)?, ()))
    }

    /// Local. What this rank holds: `Part::Value` or `Part::Gradient`.
    ///
    /// # Errors
    /// - `InvalidArgument`: there is no such parameter.
    /// - `InvalidState`: a full part while the group is sharded, or the gradient of a frozen parameter.
    pub fn view(&self, index: usize, part: Part) -> Result<View<'_>> {
        Ok(unsafe { View::from_raw(&part_view(self.handle, index, part)?, Name("part", Some(index))) })
    }

    /// Collective. Adds the sum over all data ranks to the local gradient and empties the full one.
    ///
    /// # Errors
    /// What any collective fails by.
    pub fn reduce(&mut self) -> Result<()> {
        check(unsafe { sys::gw_shard_group_reduce(self.handle, NO_STREAM) })
    }

    /// Collective. The program's own optimizer: `step` writes the local values; then they are published and
    /// the gradient is emptied, also when `step` fails.
    ///
    /// # Errors
    /// - `InvalidState`, on every rank: the group of a rank is still unsharded, or an update has begun
    ///   already.
    /// - What `step` returns.
    /// - What any collective fails by.
    pub fn update<R>(&mut self, step: impl FnOnce(&mut Update<'_>) -> Result<R>) -> Result<R> {
        check(unsafe { sys::gw_shard_group_begin_update(self.handle, NO_STREAM) })?;
        let end = EndUpdate(self.handle); // on panics too
        let result = step(&mut Update { handle: self.handle, group: PhantomData });
        std::mem::forget(end);
        check(unsafe { sys::gw_shard_group_end_update(self.handle, NO_STREAM) })?;
        result
    }
}

struct Reshard(*mut sys::gw_shard_group);

impl Drop for Reshard {
    fn drop(&mut self) {
        unsafe { sys::gw_shard_group_reshard(self.0, NO_STREAM) };
    }
}

struct EndUpdate(*mut sys::gw_shard_group);

impl Drop for EndUpdate {
    fn drop(&mut self) {
        unsafe { sys::gw_shard_group_end_update(self.0, NO_STREAM) };
    }
}

fn part_view(group: *mut sys::gw_shard_group, index: usize, part: Part) -> Result<sys::gw_view> {
    let mut raw = sys::gw_view::default();
    check(unsafe { sys::gw_shard_group_view(group, index, part.write(), &mut raw) })?;
    Ok(raw)
}

/// A group's full values, during [`Group::unsharded`].
#[derive(Debug)]
pub struct Unsharded<'u> {
    handle: *mut sys::gw_shard_group,
    count: usize,
    group: PhantomData<&'u mut ()>,
}

impl<'u> Unsharded<'u> {
    /// Number of parameters.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Local. The whole value in the compute dtype.
    ///
    /// # Errors
    /// `InvalidArgument`: there is no such parameter.
    pub fn value(&self, index: usize) -> Result<View<'u>> {
        Ok(unsafe {
            View::from_raw(&part_view(self.handle, index, Part::FullValue)?, Name("value", Some(index)))
        })
    }

    /// Local. The whole gradient, to add to in place.
    ///
    /// # Errors
    /// - `InvalidArgument`: there is no such parameter.
    /// - `InvalidState`: it is frozen.
    pub fn gradient(&mut self, index: usize) -> Result<ViewMut<'_>> {
        Ok(unsafe {
            ViewMut::from_raw(
                &part_view(self.handle, index, Part::FullGradient)?,
                Name("gradient", Some(index)),
            )
        })
    }

    /// Local. A DLPack export of the whole value, read-only, for another library. It outlives the reshard: its
    /// memory is freed with the last export, but its values may follow the parameter after the next update.
    ///
    /// # Errors
    /// - `InvalidArgument`: there is no such parameter.
    /// - `OutOfMemory`.
    pub fn export(&self, index: usize) -> Result<NonNull<sys::DLManagedTensorVersioned>> {
        let mut tensor = std::ptr::null_mut();
        let part = Part::FullValue.write();
        let status = unsafe { sys::gw_shard_group_tensor(self.handle, index, part, &mut tensor) };
        Tensor::owned(status, tensor)?.to_dlpack()
    }

    /// Local. Adds to the full gradient (f64, f32, bf16 or f16; global shape).
    ///
    /// # Errors
    /// - `InvalidArgument`: there is no such parameter, or the gradient has another shape or dtype.
    /// - `InvalidState`: the parameter is frozen.
    pub fn add_gradient(&mut self, index: usize, gradient: &impl AsView) -> Result<()> {
        let view = gradient.as_view();
        check(unsafe { sys::gw_shard_group_add_gradient(self.handle, index, &raw_view(&view), NO_STREAM) })
    }
}

/// A group's local rows, during [`Group::update`].
#[derive(Debug)]
pub struct Update<'u> {
    handle: *mut sys::gw_shard_group,
    group: PhantomData<&'u mut ()>,
}

impl<'u> Update<'u> {
    /// Local. Own rows of the value, to write.
    ///
    /// # Errors
    /// `InvalidArgument`: there is no such parameter.
    pub fn value(&mut self, index: usize) -> Result<ViewMut<'_>> {
        Ok(unsafe {
            ViewMut::from_raw(&part_view(self.handle, index, Part::Value)?, Name("value", Some(index)))
        })
    }

    /// Local. Own rows of the gradient.
    ///
    /// # Errors
    /// - `InvalidArgument`: there is no such parameter.
    /// - `InvalidState`: it is frozen.
    pub fn gradient(&self, index: usize) -> Result<View<'u>> {
        Ok(unsafe {
            View::from_raw(&part_view(self.handle, index, Part::Gradient)?, Name("gradient", Some(index)))
        })
    }
}
