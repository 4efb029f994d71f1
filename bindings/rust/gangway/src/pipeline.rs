//! Pipelines of stages that the program computes by itself.
use crate::array::Views;
use crate::error::{check, made, Result};
use crate::gang::{rank_number, Gang};
use crate::options::{initialised, open_enum, Field};
use crate::parallel::PipelineOptions;
use crate::tensor::Tensor;
use crate::view::{null_view, raw_view, raw_views, Name, View};
use gangway_sys as sys;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

open_enum! {
    /// What an action of a pipeline computes.
    ActionKind {
        /// Inputs: what the stage before made, none on the first stage. Results: the stage's outputs, none on the last.
        Forward = GW_ACTION_FORWARD,
        /// Inputs: gradients of those outputs, none on the last stage. Results: gradients of the forward's inputs, none on
        /// the first stage.
        Backward = GW_ACTION_BACKWARD,
        /// As `Backward`, without the gradients of the weights, which come later.
        InputGradient = GW_ACTION_INPUT_GRADIENT,
        /// The gradients of the weights. From here on there are neither inputs nor results.
        WeightGradient = GW_ACTION_WEIGHT_GRADIENT,
        /// The stage's weights are needed from here on.
        Unshard = GW_ACTION_UNSHARD,
        /// They are not needed for a while.
        Reshard = GW_ACTION_RESHARD,
        /// All gradients of the stage's weights are made.
        ReduceGrad = GW_ACTION_REDUCE_GRAD,
    }
}

/// A pipeline of stages that the program computes by itself: it pulls actions, computes them, and hands the results back; the
/// library runs the schedule and moves what goes between the stages. (A model of this library that is cut into stages needs
/// none of this: [`Module::parallelize`](crate::Module::parallelize) over a mesh with pp.)
///
/// ```no_run
/// use gangway::{ActionKind, Pipeline, PipelineOptions};
/// # fn compute(action: &gangway::Action<'_>) -> gangway::Result<gangway::Array<f32>> { gangway::Array::new(vec![], &[0]) }
/// # fn main() -> gangway::Result<()> {
/// # let gangs = gangway::init(&Default::default())?;
/// let options = PipelineOptions { microbatches: 8, schedule: Some("zb-h1".into()), ..Default::default() };
/// let mut pipe = Pipeline::new(gangs.pp(), &options)?;
/// while let Some(action) = pipe.next()? {
///     let results = compute(&action)?;
///     match action.kind {
///         ActionKind::Forward if !action.last_stage => action.done(&results)?,
///         ActionKind::Backward | ActionKind::InputGradient if !action.first_stage => action.done(&results)?,
///         _ => action.done(())?,
///     }
/// } // one pass; the next call begins another one
/// # Ok(()) }
/// ```
///
/// All ranks pass together. A pipeline that is dropped in the middle of a pass ends the pass on all: their calls return
/// `Aborted`.
pub struct Pipeline {
    handle: NonNull<sys::gw_pipeline>,
}

// One thread at a time, as `&mut self` has it.
unsafe impl Send for Pipeline {}

impl Pipeline {
    /// Collective over the gang, whose rank r does row r of the schedule; all ranks return the first refusal.
    /// `options.shard_actions` 0: no `Unshard`, `Reshard` and `ReduceGrad`.
    ///
    /// # Errors
    /// - `InvalidArgument`: an unknown schedule, numbers that break its rules, or a CSV that is not correct
    ///   (the text says where).
    /// - `Mismatch`: ranks have different schedules.
    pub fn new(gang: &Gang, options: &PipelineOptions) -> Result<Pipeline> {
        let mut handle = std::ptr::null_mut();
        let status =
            options.with_raw(|raw| unsafe { sys::gw_pipeline_create(gang.raw(), raw, &mut handle) })?;
        Ok(Pipeline { handle: made(status, handle)? })
    }

    fn raw(&self) -> *mut sys::gw_pipeline {
        self.handle.as_ptr()
    }

    fn info(&self) -> sys::gw_pipeline_info {
        let mut info = initialised!(gw_pipeline_info, gw_pipeline_info_init);
        check(unsafe { sys::gw_pipeline_describe(self.raw(), &mut info) }).expect("a pipeline has facts");
        info
    }

    /// Of the whole pipeline.
    pub fn stages(&self) -> usize {
        self.info().stages as usize
    }

    /// Of a pass.
    pub fn microbatches(&self) -> usize {
        self.info().microbatches as usize
    }

    /// The stages that this rank computes.
    pub fn local_stages(&self) -> Vec<usize> {
        let info = self.info();
        let own = |stage: &usize| matches!(self.stage_rank(*stage), Ok(rank) if rank == info.rank as usize);
        (0..info.stages as usize).filter(own).collect()
    }

    /// The rank of the gang that runs `stage`.
    ///
    /// # Errors
    /// `InvalidArgument`: there is no such stage.
    pub fn stage_rank(&self, stage: usize) -> Result<usize> {
        let mut rank = 0;
        check(unsafe { sys::gw_pipeline_stage_rank(self.raw(), rank_number(stage), &mut rank) })?;
        Ok(rank as usize)
    }

    /// Local. False: the passes that follow are forwards alone. Equal on all ranks; `InvalidState` in the middle of a pass.
    ///
    /// # Errors
    /// `InvalidState`: a pass is under way.
    pub fn set_training(&mut self, training: bool) -> Result<()> {
        check(unsafe { sys::gw_pipeline_set_training(self.raw(), training as i32) })
    }

    /// Waits for the inputs of the next action; None: the pass is over, and the next call begins another one. An action that
    /// was not [`done`](Action::done) is `InvalidState`.
    ///
    /// # Errors
    /// - `InvalidState`: the action before is not done.
    /// - What any collective fails by.
    #[allow(clippy::should_implement_trait)] // a lending iterator
    pub fn next(&mut self) -> Result<Option<Action<'_>>> {
        let mut raw = initialised!(gw_pipeline_action, gw_pipeline_action_init);
        check(unsafe { sys::gw_pipeline_next(self.raw(), std::ptr::null_mut(), &mut raw) })?;
        if raw.kind == sys::GW_ACTION_END {
            return Ok(None);
        }
        let views: &[sys::gw_view] = match raw.input_count {
            0 => &[],
            count => unsafe { std::slice::from_raw_parts(raw.inputs, count) },
        };
        let input = |(i, view): (usize, &sys::gw_view)| {
            (!view.shape.is_null()).then(|| unsafe { View::from_raw(view, Name("inputs", Some(i))) })
        };
        Ok(Some(Action {
            kind: ActionKind::read(raw.kind),
            stage: raw.stage as usize,
            microbatch: usize::try_from(raw.microbatch).ok(),
            first_stage: raw.first_stage != 0,
            last_stage: raw.last_stage != 0,
            training: raw.training != 0,
            inputs: views.iter().enumerate().map(input).collect(),
            pipeline: self.handle,
            pass: PhantomData,
        }))
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        unsafe { sys::gw_pipeline_release(self.raw()) }
    }
}

impl fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let info = self.info();
        f.debug_struct("Pipeline")
            .field("stages", &info.stages)
            .field("microbatches", &info.microbatches)
            .field("rank", &info.rank)
            .field("local_stages", &self.local_stages())
            .finish()
    }
}

/// What to compute next. Its inputs are borrowed until the next [`Pipeline::next`]; [`keep`](Action::keep) holds one for
/// longer, for example for the backward:
///
/// ```compile_fail,E0499
/// # fn leak(pipe: &mut gangway::Pipeline) -> gangway::Result<()> {
/// let first = pipe.next()?.unwrap();
/// let second = pipe.next()?; // the inputs of the first one end here
/// println!("{:?}", first.inputs);
/// # Ok(()) }
/// ```
#[must_use = "an action is ended by done()"]
pub struct Action<'p> {
    pub kind: ActionKind,
    pub stage: usize,
    /// None: the kind has none.
    pub microbatch: Option<usize>,
    /// The first stage gets no inputs: it reads the program's own data.
    pub first_stage: bool,
    /// The last stage has no results: the program computes the loss.
    pub last_stage: bool,
    /// Whether this pass has backwards.
    pub training: bool,
    /// None: an output that has no gradient, because it is no floating tensor.
    pub inputs: Vec<Option<View<'p>>>,
    pipeline: NonNull<sys::gw_pipeline>,
    pass: PhantomData<&'p mut Pipeline>,
}

impl Action<'_> {
    /// Input `index`, without a copy, for as long as the tensor lives. None: it has no gradient.
    ///
    /// # Errors
    /// `InvalidArgument`: there is no such input.
    pub fn keep(&self, index: usize) -> Result<Option<Tensor>> {
        let mut tensor = std::ptr::null_mut();
        check(unsafe { sys::gw_pipeline_input(self.pipeline.as_ptr(), index, &mut tensor) })?;
        Ok(Tensor::from_handle(tensor))
    }

    /// Ends the action with its results, which are copied: `()`, `&y`, `(&y, &z)`, a slice of views. The inputs stay borrowed.
    /// After a refusal the action is still to be done.
    ///
    /// # Errors
    /// - `InvalidArgument`: the number, shapes or dtypes of the results; the action is still to be done.
    /// - `InvalidState`: the action was done already.
    /// - What any collective fails by.
    pub fn done<'v>(&self, results: impl Views<'v>) -> Result<()> {
        let views = results.views();
        self.end(&raw_views(&views))
    }

    /// The same with gradients that may be missing: None where an input is no floating tensor.
    ///
    /// # Errors
    /// As [`Action::done`].
    pub fn done_some(&self, results: &[Option<View<'_>>]) -> Result<()> {
        let raw: Vec<_> = results.iter().map(|view| view.as_ref().map_or_else(null_view, raw_view)).collect();
        self.end(&raw)
    }

    fn end(&self, raw: &[sys::gw_view]) -> Result<()> {
        let (pipeline, stream) = (self.pipeline.as_ptr(), std::ptr::null_mut());
        check(unsafe { sys::gw_pipeline_done(pipeline, raw.as_ptr(), raw.len(), stream) })
    }
}

impl fmt::Debug for Action<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: stage {}", self.kind, self.stage)?;
        if let Some(microbatch) = self.microbatch {
            write!(f, ", microbatch {microbatch}")?;
        }
        if !self.inputs.is_empty() {
            write!(f, ", inputs {:?}", self.inputs)?;
        }
        Ok(())
    }
}
