//! Sharded training for Rust: gangs of ranks and their collectives, fully sharded modules, optimizers and
//! model files, on libgangway.
//!
//! ```no_run
//! use gangway::{AdamW, Array, Decoder, DecoderOptions, Mesh, ParallelOptions, Reduce};
//! # fn main() -> gangway::Result<()> {
//! # let tokens = Array::new(vec![0i64; 8], &[1, 8])?;
//! # let mut values = vec![0f32; 4];
//! let gangs = gangway::init(&Mesh::default().tp(2))?;
//! let mut model = Decoder::new(&DecoderOptions { dim: 256, layers: 4, ..Default::default() })?;
//! model.parallelize(&gangs, &ParallelOptions::default())?;
//! let mut opt = AdamW::new(&model, &Default::default())?;
//! let result = model.train_step(&mut opt, &tokens, ())?; // the library makes the labels
//! gangs.dp().all_reduce(&mut values, Reduce::Sum).run()?;
//! # println!("{result:?}"); Ok(()) }
//! ```
//!
//! - **Errors.** A failed call is an [`Error`] with code, text, rank, peer and operation. A refused call
//!   changes nothing; one that fails while data moves leaves its outputs undefined and its gang broken.
//! - **Collectives** are builders, such as `gang.all_reduce(buffer, Reduce::Sum)`: [`run`](Collective::run)
//!   waits and takes borrows, [`start`](Collective::start) gives a [`Work`] that owns the buffers.
//! - **Ranks** are processes (`gangrun -n 2 program`) or threads ([`Gang::threads`]). Calls marked
//!   *collective* are made by every rank in the same order.
//! - **Ends.** Drops are local and come in any order; only [`Gangs::shutdown`] and [`Gang::shutdown`] leave a
//!   gang orderly.
//! - **Own compute**: [`Custom`] makes closures a module; [`ShardGroup`] shards a program that has its own
//!   loop; [`Pipeline`] schedules its stages.
//! - **Features.** `half`: `half::f16` and `half::bf16` are [`Element`]s. `ndarray`: its arrays are inputs
//!   ([`AsView`]), and `View::ndarray` shows views of the library as its arrays. `dlopen` opens the library
//!   at run time; `bindgen` makes the lowest layer while building.
#![warn(rust_2018_idioms)]
#![deny(missing_debug_implementations, clippy::missing_errors_doc)]

mod all_gather_list;
mod array;
mod buffer;
mod call;
mod callback;
mod checkpoints;
mod collective;
mod collectives;
mod custom;
mod custom_optimizer;
mod dataset;
mod element;
mod error;
mod exchange;
mod fp8;
mod frame;
mod gang;
mod group;
mod layers;
mod lora;
mod memory;
mod mesh;
mod metrics;
mod module;
#[cfg(feature = "ndarray")]
mod ndarrays;
mod optim;
mod optimizers;
mod options;
mod parallel;
mod parameter;
mod partition;
mod pipeline;
mod plan;
mod store;
mod system;
mod tensor;
mod train;
mod values;
mod verify;
mod view;
mod work;

pub use all_gather_list::AllGatherList;
pub use array::{Array, AsView, Views};
pub use buffer::{Buffer, BufferMut};
pub use call::{Call, Shapes, Spec};
pub use checkpoints::{
    CheckpointPart, CheckpointPartMut, CheckpointState, Checkpoints, CheckpointsOptions, RestoreOptions,
    Restored,
};
pub use collective::Collective;
pub use collectives::Reduce;
pub use custom::Custom;
pub use custom_optimizer::{CustomOptimizer, CustomOptimizerOptions, OptimizerCall};
pub use dataset::{DataBatch, Dataset, DatasetOptions, Packing, Source};
pub use element::{Bf16, Bool, Complex, DType, Element, F16};
pub use error::{Code, Error, Result};
pub use exchange::Exchange;
pub use fp8::{Fp8Options, Fp8Scaling};
pub use frame::{Frame, FrameOptions};
pub use gang::{Gang, GangOptions, Trace, Traffic};
pub use group::{Group, ShardGroup, Unsharded, Update};
pub use layers::{
    from_pretrained, Activate, Activation, Attention, AttentionOptions, Block, BlockNorms, Decoder,
    DecoderOptions, Dropout, Embedding, FeedForward, FeedForwardOptions, LayerNorm, Linear,
    LinearSkipBiasAdd, Mlp, QkNorm, RmsNorm, RopeScaling, Sequential,
};
pub use lora::LoraOptions;
pub use memory::{GangMemory, SharedMemory};
pub use mesh::{init, Current, GangPlaces, Gangs, Mesh};
pub use metrics::{Metrics, MetricsOptions, MetricsRow, MetricsStep};
pub use module::{LoadOptions, MemoryUse, Module, SaveOptions};
pub use optim::{Optimizer, Rule};
pub use optimizers::*;
pub use parallel::{
    ContextMethod, DTypeRule, ParallelOptions, PipelineOptions, Placement, PlanRow, Recompute, ShardOptions,
    StageSplit, Strategy, Style, TensorParallelOptions,
};
pub use parameter::{Parameter, ParameterInfo, ParameterOptions, Part};
pub use partition::{Along, Movement, MovementOptions, Partition};
pub use pipeline::{Action, ActionKind, Pipeline};
pub use plan::{plan_memory, PlanOptions};
pub use store::{KeyValue, Store};
#[cfg(feature = "dlopen")]
pub use system::load;
pub use system::{
    abi_version, clear_interrupt, config_text, host_memory, log_read, set_interrupt, version, HostMemory,
};
pub use tensor::Tensor;
pub use train::{Batch, GenerateOptions, SkipReason, StepOptions, StepResult};
pub use verify::{verify, verify_groups, Verified, VerifyOptions};
pub use view::{View, ViewMut};
pub use work::{wait_all, Work};
