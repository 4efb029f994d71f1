use crate::callback::{free_box, run};
use crate::error::Result;
use crate::module::Module;
use crate::optim::{Optimizer, Rule};
use crate::optimizers::Schedule;
use crate::options::{c_text, c_texts, options, with_rules};
use crate::view::{Name, ViewMut};
use gangway_sys as sys;
use std::ffi::CStr;
use std::os::raw::c_void;

/// What a step sees of one parameter: this rank's rows. The closure writes `value` and `states`.
#[derive(Debug)]
pub struct OptimizerCall<'c> {
    /// Of the parameter.
    pub name: &'c str,
    pub value: ViewMut<'c>,
    /// Unscaled and clipped.
    pub gradient: ViewMut<'c>,
    /// In the order of the options; zero at first.
    pub states: Vec<ViewMut<'c>>,
    /// With schedule and rules.
    pub lr: f64,
    pub weight_decay: f64,
    /// Counts from 1.
    pub step: i64,
}

options! {
    /// Options of [`CustomOptimizer`].
    CustomOptimizerOptions = gw_custom_optimizer_options, gw_custom_optimizer_options_init {
        lr: f64,
        weight_decay: f64,
        schedule: Schedule,
        /// 0: no average of the parameters.
        ema_decay: f64,
        warmup_steps: i64,
        total_steps: i64,
        last_lr_ratio: f64,
        decay_steps: i64,
        loss_scale: f64,
        initial_loss_scale: f64,
        loss_scale_interval: i64,
    } with {
        /// By name pattern; the last match wins.
        rules: Vec<Rule> = Vec::new(),
        /// Names of what the optimizer keeps for each parameter, in the parameter's shape.
        states: Vec<String> = Vec::new(),
        /// In errors.
        name: String = String::from("custom"),
    }
}

with_rules! {
    CustomOptimizerOptions.rules => gw_custom_optimizer_options;
}

type OnStep = Box<dyn Fn(&mut OptimizerCall<'_>) -> Result<()> + Send>;

/// An optimizer whose step is a closure, which is called for each parameter that has rows on this rank. An
/// error or a panic in it fails the training step on all ranks.
#[derive(Debug)]
pub enum CustomOptimizer {}

impl CustomOptimizer {
    /// Local. The model has memory.
    ///
    /// # Errors
    /// - `InvalidState`: the model has no memory yet.
    /// - `InvalidArgument` names the option and its range.
    #[allow(clippy::new_ret_no_self)]
    pub fn new(
        model: &Module,
        options: &CustomOptimizerOptions,
        step: impl Fn(&mut OptimizerCall<'_>) -> Result<()> + Send + 'static,
    ) -> Result<Optimizer> {
        let states = c_texts(options.states.iter().map(String::as_str), "states")?;
        let states: Vec<_> = states.iter().map(|name| name.as_ptr()).collect();
        let name = c_text(&options.name, "name")?;
        Optimizer::made(model, |model, made| {
            options.with_raw(|given| {
                let mut raw = unsafe { *given };
                raw.name = name.as_ptr();
                raw.states = states.as_ptr();
                raw.state_count = states.len();
                raw.step = Some(on_step);
                raw.user = Box::into_raw(Box::new(Box::new(step) as OnStep)).cast();
                raw.free_user = Some(free_box::<OnStep>);
                unsafe { sys::gw_custom_optimizer_create(model, &raw, made) }
            })
        })
    }
}

unsafe extern "C" fn on_step(user: *mut c_void, call: *const sys::gw_optimizer_call) -> sys::gw_status {
    run(|| {
        let c = &*call;
        let states = (0..c.state_count as usize)
            .map(|i| ViewMut::from_raw(&*c.states.add(i), Name("states", Some(i))))
            .collect();
        (*user.cast::<OnStep>())(&mut OptimizerCall {
            name: CStr::from_ptr(c.name).to_str().unwrap_or_default(),
            value: ViewMut::from_raw(&*c.value, Name("value", None)),
            gradient: ViewMut::from_raw(&*c.gradient, Name("gradient", None)),
            states,
            lr: c.lr,
            weight_decay: c.weight_decay,
            step: c.step,
        })
    })
}
