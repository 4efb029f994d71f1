//! What a training would need, before it runs.
use crate::element::DType;
use crate::error::Result;
use crate::layers::DecoderOptions;
use crate::mesh::Mesh;
use crate::module::MemoryUse;
use crate::options::options;
use crate::parallel::ParallelOptions;
use gangway_sys as sys;

options! {
    /// A training with AdamW that [`plan_memory`] judges.
    PlanOptions = gw_plan_options, gw_plan_options_init {
        /// At least 1.
        ranks: i32,
        /// Of a step; 0: one, and twice pp over pp.
        microbatches: i32,
        /// Of a microbatch of a rank.
        rows: i64,
        /// Tokens of a row; 0: `max_positions` of the decoder.
        sequence: i64,
        /// Of AdamW's averages.
        moment_dtype: DType,
        /// The ranks are processes of one CPU host, and share gathered weights.
        one_host: bool,
    } with {
        decoder: DecoderOptions = DecoderOptions::default(),
        mesh: Mesh = Mesh::default(),
        parallel: ParallelOptions = ParallelOptions::default(),
    }
}

/// Local. The rank that uses the most memory, and its bytes. They are exact: the library builds the model,
/// splits it and trains it on a device without memory, by the code of a real run. That takes some seconds for
/// large models.
///
/// ```no_run
/// use gangway::{plan_memory, DecoderOptions, Mesh, PlanOptions};
/// # fn main() -> gangway::Result<()> {
/// let decoder = DecoderOptions::from_folder("folder")?;
/// let (rank, bytes) = plan_memory(&PlanOptions { decoder, ranks: 8, mesh: Mesh::default().tp(2), ..Default::default() })?;
/// # println!("{rank} {bytes:?}"); Ok(()) }
/// ```
///
/// # Errors
/// `InvalidArgument`: what [`Decoder::new`](crate::Decoder::new), [`Gangs::new`](crate::Gangs::new),
/// [`Module::parallelize`](crate::Module::parallelize) or a step would refuse.
pub fn plan_memory(options: &PlanOptions) -> Result<(i32, MemoryUse)> {
    let mesh = options.mesh.raw();
    let mut rank = 0;
    let memory = options.decoder.with_raw(|decoder| {
        options.parallel.with_raw(|parallel| {
            let mut raw = options.raw();
            (raw.decoder, raw.mesh, raw.parallel) = (decoder, &mesh, parallel);
            MemoryUse::filled(|memory| unsafe { sys::gw_plan_memory(&raw, memory, &mut rank) })
        })
    })???;
    Ok((rank, memory))
}
