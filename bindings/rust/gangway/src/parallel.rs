use crate::element::DType;
use crate::error::Result;
use crate::options::{c_text, c_texts, initialised, open_enum, options, with_rules};
use gangway_sys as sys;

open_enum! {
    Strategy {
        /// Unshard per use.
        FullShard = GW_FULL_SHARD,
        /// Keep after forward.
        ShardGradOp = GW_SHARD_GRAD_OP,
        /// Plain data parallel.
        NoShard = GW_NO_SHARD,
    }
}

open_enum! {
    Recompute {
        None = GW_RECOMPUTE_NONE,
        Full = GW_RECOMPUTE_FULL,
        /// Keeps the outputs of linears and attention; recomputes those of norms and SwiGLU.
        Selective = GW_RECOMPUTE_SELECTIVE,
        /// Each `recompute_every`-th block.
        Every = GW_RECOMPUTE_EVERY,
        /// `recompute_ratio` of the blocks.
        Ratio = GW_RECOMPUTE_RATIO,
    }
}

open_enum! {
    /// How attention is split over the ranks of cp.
    ContextMethod {
        /// Keys and values go around a ring of ranks while each computes with those that it has.
        Ring = GW_CONTEXT_RING,
        /// Each rank gathers all keys and values.
        AllGather = GW_CONTEXT_ALL_GATHER,
        /// Each rank has the whole sequence of some heads (Ulysses).
        AllToAll = GW_CONTEXT_ALL_TO_ALL,
    }
}

open_enum! {
    /// How the layers of a model are shared out among the stages of a pipeline.
    StageSplit {
        /// The same number of layers; the first stages one more where it does not divide.
        Even = GW_STAGE_SPLIT_EVEN,
        /// The largest stage has as few parameters as possible, embedding and head counted.
        ByCost = GW_STAGE_SPLIT_BY_COST,
        /// `first_layers`.
        Given = GW_STAGE_SPLIT_GIVEN,
    }
}

options! {
    PipelineOptions = gw_pipeline_options, gw_pipeline_options_init {
        /// 0, in `ParallelOptions`: those of each step.
        microbatches: i32,
        /// 0: the schedule's own.
        stages_per_rank: i32,
        /// At most so many stages of a rank are unsharded at a time; 0: 3 of a model, none of stages of your own.
        shard_actions: i32,
    } with {
        /// "gpipe", "1f1b", "interleaved-1f1b", "looped-bfs", "zb-h1", "zb-h2", "zbv" or "dualpipev"; none: "1f1b".
        schedule: Option<String> = None,
        /// The whole schedule instead, a row for each rank.
        schedule_csv: Option<String> = None,
    }
}

impl PipelineOptions {
    /// Calls with the C struct; its texts live as long as the call.
    pub(crate) fn with_raw<R>(&self, call: impl FnOnce(*const sys::gw_pipeline_options) -> R) -> Result<R> {
        let name = self.schedule.as_deref().map(|text| c_text(text, "schedule")).transpose()?;
        let csv = self.schedule_csv.as_deref().map(|text| c_text(text, "schedule_csv")).transpose()?;
        let mut raw = self.raw();
        raw.schedule = name.as_ref().map_or(std::ptr::null(), |text| text.as_ptr());
        raw.schedule_csv = csv.as_ref().map_or(std::ptr::null(), |text| text.as_ptr());
        Ok(call(&raw))
    }
}

open_enum! {
    /// How a module is split over the ranks of tp.
    Style {
        /// Whole on each rank.
        Replicate = GW_STYLE_REPLICATE,
        /// A linear or an embedding, by its outputs.
        Colwise = GW_STYLE_COLWISE,
        /// A linear, by its inputs; an embedding, by its rows.
        Rowwise = GW_STYLE_ROWWISE,
        /// A module that works token by token (a norm), on parts of the sequence.
        SequenceParallel = GW_STYLE_SEQUENCE_PARALLEL,
        /// The first input is moved; other rows split what is below the module.
        PrepareInput = GW_STYLE_PREPARE_INPUT,
        /// The first output is moved, likewise.
        PrepareOutput = GW_STYLE_PREPARE_OUTPUT,
        /// A module that works head by head, on a part of the heads.
        Headwise = GW_STYLE_HEADWISE,
    }
}

/// How a value is placed over the ranks of tp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// One value, on all ranks; its gradient is one value, too.
    Replicate,
    /// All ranks have the value; its gradient is the sum of theirs.
    Varying,
    /// The value is the sum of the ranks' parts.
    Partial,
    /// Each rank has its part of a dim; -1: the last one.
    Shard(i32),
}

impl Placement {
    /// None: the style's.
    fn raw(placement: Option<Placement>) -> (sys::gw_placement, i32) {
        match placement {
            None => (sys::GW_PLACEMENT_DEFAULT, 0),
            Some(Placement::Replicate) => (sys::GW_PLACEMENT_REPLICATE, 0),
            Some(Placement::Varying) => (sys::GW_PLACEMENT_VARYING, 0),
            Some(Placement::Partial) => (sys::GW_PLACEMENT_PARTIAL, 0),
            Some(Placement::Shard(dim)) => (sys::GW_PLACEMENT_SHARD, dim),
        }
    }
}

/// A row of a tensor parallel plan: modules whose whole path matches ('*' does not match a dot, "**" does),
/// and how they are split.
#[derive(Clone, Debug)]
pub struct PlanRow {
    pub pattern: String,
    pub style: Style,
    /// How the first input comes.
    pub input: Option<Placement>,
    /// How the first output is wanted; with `PrepareInput` and `PrepareOutput` what `input` is moved to.
    pub output: Option<Placement>,
}

impl PlanRow {
    /// With the style's placements.
    pub fn new(pattern: &str, style: Style) -> PlanRow {
        PlanRow { pattern: pattern.to_owned(), style, input: None, output: None }
    }

    fn raw(&self, pattern: &std::ffi::CStr) -> sys::gw_plan_row {
        let mut raw = initialised!(gw_plan_row, gw_plan_row_init);
        raw.pattern = pattern.as_ptr();
        raw.style = crate::options::Field::write(self.style);
        (raw.input, raw.input_dim) = Placement::raw(self.input);
        (raw.output, raw.output_dim) = Placement::raw(self.output);
        raw
    }
}

options! {
    TensorParallelOptions = gw_tensor_parallel_options, gw_tensor_parallel_options_init {
        /// Of a decoder: norms work on parts of the sequence.
        sequence_parallel: bool,
        /// Of a decoder: logits stay split over the vocabulary.
        loss_parallel: bool,
        /// Over 1: where a sequence is gathered for a linear or summed into parts, each rank's part goes in so many
        /// chunks, and the product of one chunk runs while another travels.
        overlap_chunks: i32,
    } with {
        /// Rows "pattern -> style", a line each. They win over those of a custom module and of a model family.
        plan: Option<String> = None,
        /// More rows, as structs.
        rows: Vec<PlanRow> = Vec::new(),
    }
}

impl TensorParallelOptions {
    /// Calls with the C struct; its rows live as long as the call.
    pub(crate) fn with_raw<R>(
        &self,
        call: impl FnOnce(*const sys::gw_tensor_parallel_options) -> R,
    ) -> Result<R> {
        let plan = self.plan.as_deref().map(|text| c_text(text, "plan")).transpose()?;
        let patterns = c_texts(self.rows.iter().map(|row| row.pattern.as_str()), "pattern")?;
        let rows: Vec<_> = self.rows.iter().zip(&patterns).map(|(row, pattern)| row.raw(pattern)).collect();
        let mut raw = self.raw();
        raw.plan = plan.as_ref().map_or(std::ptr::null(), |text| text.as_ptr());
        raw.rows = rows.as_ptr();
        raw.row_count = rows.len();
        Ok(call(&raw))
    }
}

impl ParallelOptions {
    /// Calls with the C struct; what it points at lives as long as the call.
    pub(crate) fn with_raw<R>(&self, call: impl FnOnce(*const sys::gw_parallel_options) -> R) -> Result<R> {
        self.shard.with_raw(|shard| {
            self.tensor_parallel.with_raw(|tensor_parallel| {
                let finish = |pipeline: *const sys::gw_pipeline_options| {
                    let mut raw = self.raw();
                    raw.shard = shard;
                    raw.tensor_parallel = tensor_parallel;
                    raw.pipeline = pipeline;
                    raw.first_layers = self.first_layers.as_ptr();
                    raw.first_layer_count = self.first_layers.len();
                    call(&raw)
                };
                match &self.pipeline {
                    Some(options) => options.with_raw(finish),
                    None => Ok(finish(std::ptr::null())),
                }
            })
        })??
    }
}

options! {
    /// The compute dtype of parameters whose whole name matches; the last match wins.
    DTypeRule = gw_dtype_rule, gw_dtype_rule_init {
        dtype: DType,
    } with {
        pattern: String = String::new(),
    }
}

options! {
    ShardOptions = gw_shard_options, gw_shard_options_init {
        strategy: Strategy,
        /// -1: the strategy's; 0 or 1; k over 1: after forward values stay split over k consecutive ranks, from
        /// which backward gathers them.
        reshard_after_forward: i32,
        /// Compute dtype; NONE: the master's.
        param_dtype: DType,
        /// Dtype in which gradients are reduced; NONE: f32 (f64 for f64).
        reduce_dtype: DType,
        /// Of the parameter group's outputs; NONE: as computed.
        output_dtype: DType,
        cast_forward_inputs: bool,
        cpu_offload: bool,
        prefetch_forward: i32,
        prefetch_backward: i32,
        /// -1: the strategy's; 0: reduce each microbatch; 1: once.
        accumulate_unsharded: i32,
        /// With `Strategy::NoShard`.
        bucket_cap_mb: f64,
    } with {
        dtype_rules: Vec<DTypeRule> = Vec::new(),
    }
}

options! {
    ParallelOptions = gw_parallel_options, gw_parallel_options_init {
        /// F32, F64 or NONE (F32).
        master_dtype: DType,
        recompute: Recompute,
        recompute_every: i32,
        recompute_ratio: f64,
        /// On a GPU, what blocks save lies in pinned memory of the host until their backward.
        activation_offload: bool,
        /// Of the first values.
        seed: u64,
        /// Over cp.
        context_method: ContextMethod,
        /// Over pp.
        stage_split: StageSplit,
    } with {
        /// Of each parameter group.
        shard: ShardOptions = ShardOptions::default(),
        /// Over tp.
        tensor_parallel: TensorParallelOptions = TensorParallelOptions::default(),
        /// Over pp; none: "1f1b" with the microbatches of each step.
        pipeline: Option<PipelineOptions> = None,
        /// With `StageSplit::Given`: the layer that each stage begins with.
        first_layers: Vec<i64> = Vec::new(),
    }
}

with_rules! {
    ShardOptions.dtype_rules => gw_shard_options;
}
