use crate::callback::{free_box, run};
use crate::error::{check, made, Error, Result};
use crate::module::Module;
use crate::options::{c_text, c_texts, options};
use crate::train::{StepOptions, StepResult};
use gangway_sys as sys;
use std::ffi::CString;
use std::fmt;
use std::os::raw::c_void;
use std::ptr::NonNull;

options! {
    /// For parameters whose whole name matches ('*' stands for characters but dots, "**" for any characters,
    /// as in "**.bias"); the last match wins. Without a match: the optimizer's weight decay, but none for 1-d
    /// parameters.
    Rule = gw_optimizer_rule, gw_optimizer_rule_init {
        lr_scale: f64,
        /// -1: as without a rule (the optimizer's; 0 for 1-d parameters).
        weight_decay: f64,
        /// Not stepped.
        frozen: bool,
        /// Of Muon alone. 1: AdamW steps the parameter; 0: Muon does; -1: as without a rule.
        adamw: i32,
    } with {
        pattern: String = String::new(),
    }
}

/// Steps the local shards of a model, and keeps it alive.
pub struct Optimizer {
    handle: NonNull<sys::gw_optimizer>,
    model: *mut sys::gw_module, // to compare only
}

// As a module: one thread at a time.
unsafe impl Send for Optimizer {}

/// Declares the optimizers: each is made of its options by its C function.
macro_rules! optimizer_kinds {
    ($($(#[$meta:meta])* $name:ident($options:ident) = $create:ident;)*) => { $(
        $(#[$meta])*
        #[derive(Debug)]
        pub enum $name {}

        impl $name {
            /// Local. The model must be materialized.
            ///
            /// # Errors
            /// - `InvalidState`: the model has no memory yet.
            /// - `InvalidArgument` names the option and its range.
            #[allow(clippy::new_ret_no_self)]
            pub fn new(model: &crate::Module, options: &$options) -> crate::Result<Optimizer> {
                Optimizer::made(model, |model, made| {
                    options.with_raw(|raw| unsafe { gangway_sys::$create(model, raw, made) })
                })
            }
        }
    )* };
}
pub(crate) use optimizer_kinds;

impl Optimizer {
    /// Takes over the handle that `create` returned.
    pub(crate) fn made(
        model: &Module,
        create: impl FnOnce(*mut sys::gw_module, *mut *mut sys::gw_optimizer) -> Result<sys::gw_status>,
    ) -> Result<Optimizer> {
        let mut handle = std::ptr::null_mut();
        let status = create(model.raw(), &mut handle)?;
        Ok(Optimizer { handle: made(status, handle)?, model: model.raw() })
    }

    /// Local. By the name of its kind and options as texts, for programs that read them from a file:
    /// `Optimizer::by_name(&model, "adamw", &[("lr", "1e-3"), ("schedule", "cosine")])`. The options are the
    /// fields of the kind's options without `rules`; those that are not given have their defaults.
    /// `Code::InvalidArgument` lists the known kinds or options.
    ///
    /// # Errors
    /// - `InvalidArgument`: an unknown kind or option (the text lists all), or a value.
    /// - `InvalidState`: the model has no memory yet.
    pub fn by_name(model: &Module, kind: &str, options: &[(&str, &str)]) -> Result<Optimizer> {
        let kind = c_text(kind, "kind")?;
        let names = c_texts(options.iter().map(|option| option.0), "option")?;
        let values = c_texts(options.iter().map(|option| option.1), "value")?;
        let pointers = |texts: &[CString]| texts.iter().map(|text| text.as_ptr()).collect::<Vec<_>>();
        let (names_at, values_at) = (pointers(&names), pointers(&values));
        Optimizer::made(model, |model, made| {
            let (names, values) = (names_at.as_ptr(), values_at.as_ptr());
            Ok(unsafe { sys::gw_optimizer_create(model, kind.as_ptr(), names, values, options.len(), made) })
        })
    }

    pub(crate) fn raw(&self) -> *mut sys::gw_optimizer {
        self.handle.as_ptr()
    }

    /// A step writes the parameters of the optimizer's own model, so it must borrow that model: the borrow of
    /// another one would not protect their views.
    pub(crate) fn expect_model(&self, model: &Module) -> Result<()> {
        expect_same(self.model, model, "the optimizer was made")
    }

    /// Local. Steps taken.
    ///
    /// # Errors
    /// Only what any call may return, see [`Code`](crate::Code).
    pub fn steps(&self) -> Result<i64> {
        let mut steps = 0;
        check(unsafe { sys::gw_optimizer_steps(self.raw(), &mut steps) })?;
        Ok(steps)
    }

    /// Local. For checkpoints of your own; every rank must set the same.
    ///
    /// # Errors
    /// `InvalidArgument`: `steps` is below 0.
    pub fn set_steps(&mut self, steps: i64) -> Result<()> {
        check(unsafe { sys::gw_optimizer_set_steps(self.raw(), steps) })
    }

    /// Local. Learning rate of the next step, before rules.
    ///
    /// # Errors
    /// Only what any call may return, see [`Code`](crate::Code).
    pub fn lr(&self) -> Result<f64> {
        let mut lr = 0.0;
        check(unsafe { sys::gw_optimizer_lr(self.raw(), &mut lr) })?;
        Ok(lr)
    }

    /// Local. A new base rate; every rank must set the same.
    ///
    /// # Errors
    /// `InvalidArgument`: `lr` is not finite, or below 0.
    pub fn set_lr(&mut self, lr: f64) -> Result<()> {
        check(unsafe { sys::gw_optimizer_set_lr(self.raw(), lr) })
    }

    /// Local. Takes the closure in the place of schedule and warm-up: what the base rate is multiplied by at
    /// a step, which counts from 1. Every rank must give equal factors.
    ///
    /// # Errors
    /// Only what any call may return, see [`Code`](crate::Code).
    pub fn set_schedule(&mut self, factor: impl Fn(i64) -> f64 + Send + 'static) -> Result<()> {
        let user = Box::into_raw(Box::new(Box::new(factor) as OnSchedule)).cast();
        let release = Some(free_box::<OnSchedule> as _);
        check(unsafe { sys::gw_optimizer_set_schedule(self.raw(), Some(on_schedule), user, release) })
    }

    /// Local. The factor of the loss in the next step; 1: none. Own loops start their backward from it over N.
    ///
    /// # Errors
    /// Only what any call may return, see [`Code`](crate::Code).
    pub fn loss_scale(&self) -> Result<f64> {
        let mut scale = 0.0;
        check(unsafe { sys::gw_optimizer_loss_scale(self.raw(), &mut scale) })?;
        Ok(scale)
    }

    /// Local. Sets the loss scale; it stays fixed or dynamic as it was. Every rank must set the same, between
    /// step and backward.
    ///
    /// # Errors
    /// `InvalidArgument`: the scale is outside of 2^-126 to 2^126; a dynamic one, outside of 1 to 2^24.
    pub fn set_loss_scale(&mut self, scale: f64) -> Result<()> {
        check(unsafe { sys::gw_optimizer_set_loss_scale(self.raw(), scale) })
    }

    /// Local. The rate that the schedule multiplies.
    ///
    /// # Errors
    /// Only what any call may return, see [`Code`](crate::Code).
    pub fn base_lr(&self) -> Result<f64> {
        let mut lr = 0.0;
        check(unsafe { sys::gw_optimizer_base_lr(self.raw(), &mut lr) })?;
        Ok(lr)
    }

    /// Local. Finite steps in a row since a dynamic loss scale changed.
    ///
    /// # Errors
    /// Only what any call may return, see [`Code`](crate::Code).
    pub fn finite_steps(&self) -> Result<i64> {
        let mut steps = 0;
        check(unsafe { sys::gw_optimizer_finite_steps(self.raw(), &mut steps) })?;
        Ok(steps)
    }

    /// Local. For checkpoints of your own: the loss scale with its counter.
    ///
    /// # Errors
    /// `InvalidArgument`: as [`Optimizer::set_loss_scale`], or `finite_steps` is below 0.
    pub fn restore_loss_scale(&mut self, scale: f64, finite_steps: i64) -> Result<()> {
        check(unsafe { sys::gw_optimizer_restore_loss_scale(self.raw(), scale, finite_steps) })
    }

    /// Collective. States from a safetensors file: tensors STATE.PARAMETER such as exp_avg.model.norm.weight,
    /// and `step`.
    ///
    /// # Errors
    /// - `NotFound`: a state is missing.
    /// - `InvalidArgument`: another shape or dtype, or a tensor that the optimizer has no place for.
    /// - `Io`: the file cannot be read.
    pub fn load(&mut self, path: impl AsRef<std::path::Path>) -> Result<()> {
        let path = crate::options::path_text(path.as_ref())?;
        check(unsafe { sys::gw_optimizer_load(self.raw(), path.as_ptr()) })
    }

    /// Collective. Exchanges the parameters and their averages (`ema_decay`), for an evaluation or a save; a
    /// second call swaps back, and no step is taken before.
    ///
    /// # Errors
    /// - `InvalidArgument`: the optimizer is of another model.
    /// - `InvalidState`: `ema_decay` is 0, or the optimizer has not stepped yet.
    pub fn swap_ema(&mut self, model: &mut Module) -> Result<()> {
        self.expect_model(model)?;
        check(unsafe { sys::gw_optimizer_swap_ema(self.raw(), std::ptr::null_mut()) })
    }

    /// Collective. The optimizer's half for own loops: divides by the loss scale, scales, clips, steps, empties
    /// the gradients.
    ///
    /// # Errors
    /// - `InvalidArgument`, on every rank: the options of a rank. On this rank: the optimizer is of another
    ///   model.
    /// - `InvalidState`, on every rank: the forward of a rank awaits its backward.
    /// - `Mismatch`: ranks have different options or optimizers.
    pub fn step(&mut self, model: &mut Module, options: &StepOptions) -> Result<StepResult> {
        self.expect_model(model)?;
        StepResult::filled(|raw| unsafe {
            sys::gw_optimizer_step(self.raw(), &options.raw(), std::ptr::null_mut(), raw)
        })
    }
}

/// Refuses a model that is not `own`. The error begins with `made`, for instance "the optimizer was made".
pub(crate) fn expect_same(own: *mut sys::gw_module, model: &Module, made: &str) -> Result<()> {
    if own == model.raw() {
        return Ok(());
    }
    Err(Error::argument(format!("{made} for another model")))
}

type OnSchedule = Box<dyn Fn(i64) -> f64 + Send>;

unsafe extern "C" fn on_schedule(user: *mut c_void, step: i64, out_factor: *mut f64) -> sys::gw_status {
    run(|| {
        *out_factor = (*user.cast::<OnSchedule>())(step);
        Ok(())
    })
}

impl fmt::Debug for Optimizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.steps(), self.lr()) {
            (Ok(steps), Ok(lr)) => {
                f.debug_struct("Optimizer").field("steps", &steps).field("lr", &lr).finish()
            }
            (Err(error), _) | (_, Err(error)) => write!(f, "optimizer ({error})"),
        }
    }
}

impl Drop for Optimizer {
    fn drop(&mut self) {
        unsafe { sys::gw_optimizer_release(self.raw()) }
    }
}
