//! Metrics: the numbers of a training run, in files, as a picture.
use crate::error::{check, made, Result};
use crate::module::Module;
use crate::optim::expect_same;
use crate::options::{c_text, options, path_text, read_text, results, text_pointer};
use crate::train::StepResult;
use gangway_sys as sys;
use std::ffi::CString;
use std::fmt;
use std::path::PathBuf;
use std::ptr::NonNull;

options! {
    MetricsOptions = gw_metrics_options, gw_metrics_options_init {
        /// A row ends at each step that is a multiple of this.
        every: i32,
        /// The tokens of a row of the batch, for the MFU; 0: no MFU.
        sequence: i64,
        /// Of one rank, in FLOP/s; 0: measured by a short product.
        peak_flops: f64,
    } with {
        /// A file that rank 0 writes. One that is there is continued; a line of a step that comes again is
        /// cut.
        json_lines: Option<PathBuf> = None,
        /// Likewise.
        csv: Option<PathBuf> = None,
        /// A picture of the losses, which [`Metrics::flush`] draws.
        svg: Option<PathBuf> = None,
    }
}

options! {
    /// What a step's result does not say.
    #[derive(Copy)]
    MetricsStep = gw_metrics_step, gw_metrics_step_init {
        /// The rows of the global batch.
        samples: i64,
        /// For which the step waited for its batch.
        data_seconds: f64,
        /// For which saves stopped training since the step before.
        checkpoint_seconds: f64,
    }
}

results! {
    /// The numbers of the steps since the row before; equal on every rank. The fields in seconds are sums
    /// over these steps; `loss`, `grad_norm`, `lr` and `loss_scale` are those of the last one. What is absent
    /// is NaN.
    MetricsRow = gw_metrics_row, gw_metrics_row_init {
        /// Of the run, skipped ones included.
        step: i64,
        /// Of the run so far, over all data ranks.
        tokens: i64,
        /// Rows of the global batches of the run so far.
        samples: i64,
        loss: f64,
        /// Of the last [`Metrics::log_evaluation`] since the row before.
        validation_loss: f64,
        grad_norm: f64,
        lr: f64,
        loss_scale: f64,
        /// Over `seconds`.
        tokens_per_second: f64,
        /// The model FLOPs utilization.
        mfu: f64,
        /// In steps.
        seconds: f64,
        data_seconds: f64,
        checkpoint_seconds: f64,
        evaluate_seconds: f64,
        /// In collectives: the mean of all ranks.
        wait_seconds: f64,
        /// It waited least: the others waited for it.
        slowest_rank: i64,
        /// How much longer the other ranks waited than that rank, on average.
        slowest_rank_seconds: f64,
        /// Bytes of the model and its optimizers on the rank that has most.
        memory: i64,
        /// The most of `memory` so far.
        memory_peak: i64,
        /// Steps that changed nothing.
        skipped: i64,
    }
}

/// Adds up the results of steps, and writes a row of them every so many steps.
///
/// ```no_run
/// use gangway::{Metrics, MetricsOptions, MetricsStep};
/// # fn train(model: &mut gangway::Module, opt: &mut gangway::Optimizer, batch: &gangway::DataBatch<'_>)
/// # -> gangway::Result<()> {
/// let options = MetricsOptions { json_lines: Some("run/metrics.jsonl".into()), ..Default::default() };
/// let mut metrics = Metrics::new(model, &options)?;
/// let result = model.train_step_on(opt, batch, &Default::default())?;
/// let step = MetricsStep { samples: 512, data_seconds: batch.data_seconds, ..Default::default() };
/// if let Some(row) = metrics.log(model, &result, &step)? {
///     println!("{row:?}");
/// }
/// # Ok(()) }
/// ```
pub struct Metrics {
    handle: NonNull<sys::gw_metrics>,
    model: *mut sys::gw_module, // to compare only
}

// As an optimizer: one thread at a time. Calls that look into the model borrow it.
unsafe impl Send for Metrics {}

impl Metrics {
    /// Collective over the gangs of the model, which it keeps alive.
    ///
    /// # Errors
    /// - `InvalidState`: the model has no memory yet.
    /// - `InvalidArgument` names the option.
    /// - `Mismatch`: ranks have other numbers in `every` or `sequence`.
    /// - `Io`, on every rank: a file cannot be opened.
    pub fn new(model: &Module, options: &MetricsOptions) -> Result<Metrics> {
        let text = |path: &Option<PathBuf>| -> Result<Option<CString>> {
            path.as_deref().map(path_text).transpose()
        };
        let (json_lines, csv, svg) = (text(&options.json_lines)?, text(&options.csv)?, text(&options.svg)?);
        let mut raw = options.raw();
        raw.json_lines = text_pointer(&json_lines);
        raw.csv = text_pointer(&csv);
        raw.svg = text_pointer(&svg);
        let mut handle = std::ptr::null_mut();
        let status = unsafe { sys::gw_metrics_create(model.raw(), &raw, &mut handle) };
        Ok(Metrics { handle: made(status, handle)?, model: model.raw() })
    }

    fn raw(&self) -> *mut sys::gw_metrics {
        self.handle.as_ptr()
    }

    /// Collective. Adds the result of a step; the new row, if the step completes one.
    ///
    /// # Errors
    /// - `InvalidArgument`: the metrics are of another model.
    /// - `Io`, on every rank: a file cannot be written.
    pub fn log(
        &mut self,
        model: &Module,
        result: &StepResult,
        step: &MetricsStep,
    ) -> Result<Option<MetricsRow>> {
        self.fresh(model, |raw| unsafe { sys::gw_metrics_log(raw, &result.raw(), &step.raw()) })
    }

    /// Local. Adds the mean loss of an evaluation and its duration to the next row.
    ///
    /// # Errors
    /// Only what any call may return, see [`Code`](crate::Code).
    pub fn log_evaluation(&mut self, loss: f64, seconds: f64) -> Result<()> {
        check(unsafe { sys::gw_metrics_log_evaluation(self.raw(), loss, seconds) })
    }

    /// Collective, at each checkpoint and at the end. Completes the row that is not full yet, and gives it;
    /// draws the picture.
    ///
    /// # Errors
    /// As [`Metrics::log`].
    pub fn flush(&mut self, model: &Module) -> Result<Option<MetricsRow>> {
        self.fresh(model, |raw| unsafe { sys::gw_metrics_flush(raw) })
    }

    /// The row that `call` completes. The memory in it is the model's, so the call must borrow that model.
    fn fresh(
        &mut self,
        model: &Module,
        call: impl FnOnce(*mut sys::gw_metrics) -> sys::gw_status,
    ) -> Result<Option<MetricsRow>> {
        expect_same(self.model, model, "the metrics were made")?;
        let before = self.latest()?.0;
        check(call(self.raw()))?;
        let (rows, row) = self.latest()?;
        Ok((rows != before).then_some(row))
    }

    /// How many rows there were, and the newest.
    fn latest(&self) -> Result<(i64, MetricsRow)> {
        let mut rows = 0;
        let row = MetricsRow::filled(|raw| unsafe { sys::gw_metrics_latest(self.raw(), raw, &mut rows) })?;
        Ok((rows, row))
    }

    /// Local. The place in the run, which a checkpoint takes: `texts: &[("metrics", &metrics.position()?)]`.
    ///
    /// # Errors
    /// Only what any call may return, see [`Code`](crate::Code).
    pub fn position(&self) -> Result<String> {
        read_text(|text, capacity, length| unsafe {
            sys::gw_metrics_position(self.raw(), text, capacity, length)
        })
    }

    /// Collective. Continues at such a place. Lines of later steps are cut from the files.
    ///
    /// # Errors
    /// `Corrupt`: the text is no position.
    pub fn restore(&mut self, position: &str) -> Result<()> {
        let position = c_text(position, "position")?;
        check(unsafe { sys::gw_metrics_restore(self.raw(), position.as_ptr()) })
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        unsafe { sys::gw_metrics_release(self.raw()) }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}
