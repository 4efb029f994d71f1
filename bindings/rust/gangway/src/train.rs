use crate::array::{AsView, Views};
use crate::error::{check, Error, Result};
use crate::module::Module;
use crate::optim::Optimizer;
use crate::options::{initialised, open_enum, options, results, Field};
use crate::view::{raw_view, raw_views, View};
use gangway_sys as sys;

options! {
    #[derive(Copy)]
    StepOptions = gw_step_options, gw_step_options_init {
        microbatches: i32,
        /// False: a loss or a gradient that is not finite skips the step on every rank. Not beside a dynamic
        /// loss scale.
        allow_non_finite: bool,
        /// 0: no clipping.
        max_grad_norm: f64,
        /// Over 0 and at most 64 (32 beside a loss scale), or infinity: the largest element.
        norm_type: f64,
        /// Factor of the gradients, for loops whose backward starts from 1.
        scale: f64,
        /// This rank asks all ranks to stop after this step, for instance since it got a signal. The step
        /// runs as usual, and [`StepResult::stop`] is true on every rank.
        stop: bool,
        /// Loss and gradients are computed twice; other bits are a `Mismatch` on every rank, with rank and
        /// parameter. It finds a processor or memory that computes wrongly.
        replay: bool,
        /// The step computes the norm of each parameter's gradient, for [`Module::gradient_norms`].
        gradient_norms: bool,
        /// Of a decoder's loss: this share of it is the mean over all ids.
        label_smoothing: f64,
        /// Of a decoder's loss: adds this times the squared log of the softmax's sum.
        z_loss: f64,
    }
}

open_enum! {
    SkipReason {
        None = GW_SKIP_NONE,
        /// No item counted on any rank.
        NoWeight = GW_SKIP_NO_WEIGHT,
        NonFinite = GW_SKIP_NON_FINITE,
    }
}

results! {
    StepResult = gw_step_result, gw_step_result_init {
        /// Global mean, on every rank; NaN if no item counted.
        loss: f64,
        /// Before clipping; -1: not taken.
        grad_norm: f64,
        /// Over all data ranks.
        tokens_per_second: f64,
        seconds: f64,
        /// Seconds of the step that were spent waiting in collectives.
        wait_seconds: f64,
        lr: f64,
        /// Items that counted, over all data ranks.
        weight: i64,
        step: i64,
        /// Nothing was changed; `skip_reason` says why.
        skipped: bool,
        skip_reason: SkipReason,
        /// The loss scale that the step used; 1: none.
        loss_scale: f64,
        /// Of the batches of all data ranks, padding included.
        tokens: i64,
        /// A rank asked for it by [`StepOptions::stop`]; equal on all ranks.
        stop: bool,
        /// What the loss was divided by: the sum of the weights of tokens, or `weight`.
        weight_sum: f64,
    }
}

impl StepResult {
    /// For the library, which reads it.
    pub(crate) fn raw(&self) -> sys::gw_step_result {
        let mut raw = initialised!(gw_step_result, gw_step_result_init);
        (raw.loss, raw.grad_norm, raw.lr, raw.loss_scale) =
            (self.loss, self.grad_norm, self.lr, self.loss_scale);
        (raw.tokens_per_second, raw.seconds) = (self.tokens_per_second, self.seconds);
        (raw.wait_seconds, raw.weight, raw.step) = (self.wait_seconds, self.weight, self.step);
        (raw.skipped, raw.skip_reason) = (self.skipped.write(), self.skip_reason.write());
        (raw.tokens, raw.stop, raw.weight_sum) = (self.tokens, self.stop.write(), self.weight_sum);
        raw
    }
}

options! {
    #[derive(Copy)]
    GenerateOptions = gw_generate_options, gw_generate_options_init {
        token_count: i64,
        /// 0: the most likely token.
        temperature: f64,
        /// 0: all.
        top_k: i64,
        seed: u64,
        /// Of the fewest tokens whose probabilities reach it together; 1: of all.
        top_p: f64,
        /// Not of tokens below this times the likeliest one's probability.
        min_p: f64,
        /// Divides positive logits of tokens that are there already, and multiplies others; 1: none.
        repetition_penalty: f64,
    }
}

/// The rows of this rank's data coordinate; dim 0 of every view is the batch. Without targets, `()`, the
/// library makes a language model's labels of its tokens.
#[derive(Clone, Debug)]
pub struct Batch<'a> {
    inputs: Vec<View<'a>>,
    targets: Vec<View<'a>>,
    weight: Option<i64>,
    shift_labels: Option<bool>,
    documents: Option<View<'a>>,
    positions: Option<View<'a>>,
    token_weights: Option<View<'a>>,
}

impl<'a> Batch<'a> {
    pub fn new(inputs: impl Views<'a>, targets: impl Views<'a>) -> Batch<'a> {
        Batch::from_views(inputs.views(), targets.views())
    }

    pub(crate) fn from_views(inputs: Vec<View<'a>>, targets: Vec<View<'a>>) -> Batch<'a> {
        Batch {
            inputs,
            targets,
            weight: None,
            shift_labels: None,
            documents: None,
            positions: None,
            token_weights: None,
        }
    }

    /// A weight of each label, `f32` or `f64` of the labels' shape, which multiplies its loss; it may be zero or
    /// negative. The loss is divided by their sum, or by that of [`Batch::weight`] over the ranks.
    pub fn token_weights<V: AsView + ?Sized>(mut self, token_weights: &'a V) -> Batch<'a> {
        self.token_weights = Some(token_weights.as_view());
        self
    }

    /// For rows that hold several documents: a number for each token, i32 or i64 `[rows, sequence]`, in memory
    /// of the host. Consecutive tokens with one number are a document, which attention does not leave; a
    /// negative number is padding. Labels that the library makes or shifts do not count at the last token of a
    /// document and in padding.
    pub fn documents<V: AsView + ?Sized>(self, documents: &'a V) -> Batch<'a> {
        self.documents_from(Some(documents.as_view()))
    }

    pub(crate) fn documents_from(mut self, documents: Option<View<'a>>) -> Batch<'a> {
        self.documents = documents;
        self
    }

    /// The position of each token, likewise; without it positions count from 0 in each document.
    pub fn positions<V: AsView + ?Sized>(mut self, positions: &'a V) -> Batch<'a> {
        self.positions = Some(positions.as_view());
        self
    }

    /// Items that count; without it: labels that are not -100.
    pub fn weight(mut self, weight: i64) -> Batch<'a> {
        self.weight = Some(weight);
        self
    }

    /// True: `labels[i]` belongs to `tokens[i]` itself, as Hugging Face's collators make labels; the library
    /// shifts them. Without it labels are used as they are.
    pub fn shift_labels(mut self, shift_labels: bool) -> Batch<'a> {
        self.shift_labels = Some(shift_labels);
        self
    }

    fn label_count(&self) -> usize {
        let labels = self.targets.first().or(self.inputs.first());
        labels.map_or(0, |view| view.shape().iter().product::<i64>() as usize)
    }

    pub(crate) fn with_raw<R>(&self, call: impl FnOnce(*const sys::gw_batch) -> R) -> R {
        let (inputs, targets) = (raw_views(&self.inputs), raw_views(&self.targets));
        let mut raw = initialised!(gw_batch, gw_batch_init);
        raw.inputs = inputs.as_ptr();
        raw.input_count = inputs.len();
        raw.targets = targets.as_ptr();
        raw.target_count = targets.len();
        raw.weight = self.weight.unwrap_or(raw.weight);
        raw.shift_labels = self.shift_labels.map_or(raw.shift_labels, i32::from);
        let rows = [&self.documents, &self.positions, &self.token_weights]
            .map(|rows| rows.iter().map(raw_view).collect::<Vec<_>>());
        let place = |list: &[sys::gw_view]| list.first().map_or(std::ptr::null(), |view| view as *const _);
        raw.documents = place(&rows[0]);
        raw.positions = place(&rows[1]);
        raw.token_weights = place(&rows[2]);
        call(&raw)
    }
}

impl Module {
    /// Collective. One step: forward, backward, gradients, optimizer. Without targets, `()`, a language
    /// model's labels are its next tokens; labels that are given are used as they are: `labels[i]` is what
    /// `tokens[i]` must predict.
    ///
    /// # Errors
    /// As [`Module::train_step_with`].
    pub fn train_step<'v>(
        &mut self,
        optimizer: &mut Optimizer,
        inputs: impl Views<'v>,
        targets: impl Views<'v>,
    ) -> Result<StepResult> {
        self.train_step_with(optimizer, &Batch::new(inputs, targets), &StepOptions::default())
    }

    /// # Errors
    /// - `InvalidArgument`, on every rank: a bad argument of one rank. On this rank: the optimizer is of
    ///   another model.
    /// - `InvalidState`, on every rank: the forward of a rank awaits its backward.
    /// - `Mismatch`, on every rank and with both values: ranks have different step options or optimizers.
    /// - A failure while the model runs (`Caller`, `PeerLost` and so on) aborts every gang of a model of
    ///   several ranks. A model of one rank works on.
    pub fn train_step_with(
        &mut self,
        optimizer: &mut Optimizer,
        batch: &Batch<'_>,
        options: &StepOptions,
    ) -> Result<StepResult> {
        optimizer.expect_model(self)?;
        let (options, stream) = (options.raw(), std::ptr::null_mut());
        batch.with_raw(|batch| {
            StepResult::filled(|raw| unsafe {
                sys::gw_train_step(self.raw(), optimizer.raw(), batch, &options, stream, raw)
            })
        })
    }

    /// The norms of the gradients of the last step with [`StepOptions::gradient_norms`]: over all ranks,
    /// unscaled and before clipping, in the order of the parameters; NaN without a gradient.
    ///
    /// # Errors
    /// `InvalidState`: no step has computed them.
    pub fn gradient_norms(&self) -> Result<Vec<f64>> {
        let mut count = 0;
        check(unsafe { sys::gw_module_gradient_norms(self.raw(), std::ptr::null_mut(), 0, &mut count) })?;
        let mut norms = vec![0.0; count];
        check(unsafe { sys::gw_module_gradient_norms(self.raw(), norms.as_mut_ptr(), count, &mut count) })?;
        Ok(norms)
    }

    /// Collective. The loss of a batch; saves and changes nothing.
    ///
    /// # Errors
    /// As [`Module::eval_step_with`].
    pub fn eval_step<'v>(&mut self, inputs: impl Views<'v>, targets: impl Views<'v>) -> Result<StepResult> {
        self.eval_step_with(&Batch::new(inputs, targets), &StepOptions::default())
    }

    /// # Errors
    /// - `InvalidArgument`, on every rank: the batch or the options of a rank.
    /// - `Mismatch`: ranks have different options.
    /// - A failure while the model runs (`Caller`, `PeerLost` and so on) aborts every gang of a model of
    ///   several ranks.
    pub fn eval_step_with(&mut self, batch: &Batch<'_>, options: &StepOptions) -> Result<StepResult> {
        let (options, stream) = (options.raw(), std::ptr::null_mut());
        batch.with_raw(|batch| {
            StepResult::filled(|raw| unsafe { sys::gw_eval_step(self.raw(), batch, &options, stream, raw) })
        })
    }

    /// Collective. Continues a prompt of token ids; the same on every rank.
    ///
    /// # Errors
    /// - `InvalidArgument`, on every rank: the model is no decoder, or an id is outside of the vocabulary.
    /// - `InvalidState`: a model without memory, or a logit that is not finite.
    pub fn generate(&mut self, prompt: &[i64], options: &GenerateOptions) -> Result<Vec<i64>> {
        let raw = options.raw();
        let count = usize::try_from(options.token_count)
            .map_err(|_| Error::argument(format!("token_count is {}", options.token_count)))?;
        let mut tokens = vec![0i64; count];
        let (data, stream) = (prompt.as_ptr(), std::ptr::null_mut());
        let (place, room, mut made) = (tokens.as_mut_ptr(), tokens.len(), 0);
        check(unsafe {
            sys::gw_generate(self.raw(), data, prompt.len(), &raw, stream, place, room, &mut made)
        })?;
        tokens.truncate(made);
        Ok(tokens)
    }

    /// Collective. Continues several prompts, whose lengths may differ, and ends a row with the first of
    /// `stop_tokens`.
    ///
    /// # Errors
    /// As [`Module::generate`].
    pub fn generate_rows(
        &mut self,
        prompts: &[&[i64]],
        stop_tokens: &[i64],
        options: &GenerateOptions,
    ) -> Result<Vec<Vec<i64>>> {
        let mut raw = options.raw();
        raw.stop_tokens = stop_tokens.as_ptr();
        raw.stop_count = stop_tokens.len();
        let count = usize::try_from(options.token_count)
            .map_err(|_| Error::argument(format!("token_count is {}", options.token_count)))?;
        let given = prompts.concat();
        let lengths: Vec<i64> = prompts.iter().map(|prompt| prompt.len() as i64).collect();
        let mut tokens = vec![0i64; count * prompts.len()];
        let mut counts = vec![0i64; prompts.len()];
        check(unsafe {
            sys::gw_generate_rows(
                self.raw(),
                given.as_ptr(),
                lengths.as_ptr(),
                lengths.len(),
                &raw,
                std::ptr::null_mut(),
                tokens.as_mut_ptr(),
                tokens.len(),
                counts.as_mut_ptr(),
            )
        })?;
        let row = |(i, &made): (usize, &i64)| tokens[i * count..i * count + made as usize].to_vec();
        Ok(counts.iter().enumerate().map(row).collect())
    }

    /// Collective. The log-probability that a decoder gives each label of a batch, in the order of the labels; 0
    /// where a label does not count. The gradients of a loss of these numbers are those of a
    /// [`Module::train_step_with`] with the negative derivatives of the loss as [`Batch::token_weights`].
    ///
    /// # Errors
    /// `InvalidArgument`, on every rank: the model is no decoder, or what [`Module::eval_step_with`] refuses.
    pub fn log_probs(&mut self, batch: &Batch<'_>, options: &StepOptions) -> Result<Vec<f64>> {
        let (options, stream) = (options.raw(), std::ptr::null_mut());
        let mut made = vec![0f64; batch.label_count()];
        let (place, room, mut count) = (made.as_mut_ptr(), made.len(), 0);
        batch.with_raw(|batch| {
            check(unsafe { sys::gw_log_probs(self.raw(), batch, &options, stream, place, room, &mut count) })
        })?;
        Ok(made)
    }
}
