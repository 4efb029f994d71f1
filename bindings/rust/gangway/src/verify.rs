use crate::callback::run;
use crate::error::Result;
use crate::mesh::Gangs;
use crate::module::{raw_gangs, Module};
use crate::options::{options, results};
use crate::parallel::ParallelOptions;
use crate::train::Batch;
use gangway_sys as sys;
use std::os::raw::c_void;

options! {
    VerifyOptions = gw_verify_options, gw_verify_options_init {
        /// Of the norm of a difference, over the norm of what is compared.
        tolerance: f64,
        /// Of the step over the mesh.
        microbatches: i32,
    } with {
        /// Of the mesh; its dtypes are not used.
        parallel: ParallelOptions = ParallelOptions::default(),
    }
}

results! {
    /// The numbers of the step on one rank and, with `mesh_`, of that over the mesh.
    Verified = gw_verify_result, gw_verify_result_init {
        loss: f64,
        mesh_loss: f64,
        grad_norm: f64,
        mesh_grad_norm: f64,
        /// The number of parameters that have gradients.
        parameters: i64,
    }
}

type Build<'b> = &'b mut dyn FnMut() -> Result<Module>;

/// Collective. Trains one step of the model that `build` describes over the gangs and on a single rank, both
/// in f64, and compares losses, every gradient and the update. Every rank computes the whole model alone, too,
/// so give a small configuration of a large one.
///
/// # Errors
/// - `Mismatch`, on every rank: the steps differ. The text names the first parameter whose gradient does, in
///   the order of backward, and by how much.
/// - `InvalidArgument`: an option, a model that is another one at the second call, or a batch of which no item
///   counts.
/// - `Caller`, or its own code: the closure. Otherwise as [`Module::parallelize`] and
///   [`Module::train_step_with`].
pub fn verify<'g>(
    gangs: impl Into<Option<&'g Gangs>>,
    mut build: impl FnMut() -> Result<Module>,
    batch: &Batch<'_>,
    options: &VerifyOptions,
) -> Result<Verified> {
    let mut build: Build<'_> = &mut build;
    let user = (&mut build as *mut Build<'_>).cast::<c_void>();
    let gangs = raw_gangs(gangs);
    options.parallel.with_raw(|parallel| {
        let mut raw = options.raw();
        raw.parallel = parallel;
        batch.with_raw(|batch| {
            Verified::filled(|out| unsafe { sys::gw_verify(gangs, Some(on_build), user, batch, &raw, out) })
        })
    })?
}

unsafe extern "C" fn on_build(user: *mut c_void, out_model: *mut *mut sys::gw_module) -> sys::gw_status {
    run(|| {
        let build = &mut *user.cast::<Build<'_>>();
        let model = build()?;
        *out_model = sys::gw_module_retain(model.raw());
        Ok(())
    })
}

type Step<'s> = &'s mut dyn FnMut(&Gangs) -> Result<(f64, Module)>;

/// Collective. The same for a program that computes by itself with shard groups: calls `step` with the gangs,
/// and once more on every rank with gangs of that rank alone. `step` makes its groups in f64 over the gangs
/// that it gets, with equal first values each time, takes the rows of the batch that [`Gangs::data_shard`]
/// says, computes loss and gradients and reduces them. It returns the mean loss of the whole batch and
/// [`Module::from_groups`] of its groups, and does not update them.
///
/// # Errors
/// - `Mismatch`, on every rank: as [`verify`], or the ranks gave other losses.
/// - `InvalidArgument`: the tolerance, groups of other gangs or other ones the second time, a parameter that is
///   not f64, or gradients that are not finite or all 0.
/// - `Caller`, or its own code: the closure. The gangs are then broken, since peers may wait in it.
pub fn verify_groups<'g>(
    gangs: impl Into<Option<&'g Gangs>>,
    mut step: impl FnMut(&Gangs) -> Result<(f64, Module)>,
    tolerance: f64,
) -> Result<Verified> {
    let mut step: Step<'_> = &mut step;
    let user = (&mut step as *mut Step<'_>).cast::<c_void>();
    let gangs = raw_gangs(gangs);
    let raw = VerifyOptions { tolerance, ..VerifyOptions::default() }.raw();
    Verified::filled(|out| unsafe { sys::gw_verify_groups(gangs, Some(on_step), user, &raw, out) })
}

unsafe extern "C" fn on_step(
    user: *mut c_void,
    gangs: *mut sys::gw_gangs,
    out_loss: *mut f64,
    out_model: *mut *mut sys::gw_module,
) -> sys::gw_status {
    run(|| {
        let step = &mut *user.cast::<Step<'_>>();
        let gangs = Gangs::borrowed(gangs)?.expect("the library passes gangs");
        let (loss, model) = step(&gangs)?;
        *out_loss = loss;
        *out_model = sys::gw_module_retain(model.raw());
        Ok(())
    })
}
