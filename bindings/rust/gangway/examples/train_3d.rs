//! Trains a small Llama over tensor, pipeline and fully sharded data parallel ranks at once: 8 ranks are tp 2 x pp 2 x 2.
//!   gangrun -n 8 train_3d [STEPS]
use gangway::*;

const VOCAB: usize = 32;
const SEQUENCE: usize = 32;
const ROWS: usize = 8; // of all ranks together
const MICROBATCHES: i32 = 2;

/// Some rows of a step's batch: counting by a step of each row's own, the same in every language.
fn batch(step: usize, rows: std::ops::Range<usize>) -> Result<Array<i64>> {
    let shape = [rows.len(), SEQUENCE];
    let row = |row: usize| (0..SEQUENCE).map(move |i| ((i * (row % 4 + 1) + row + step) % VOCAB) as i64);
    Array::new(rows.flat_map(row).collect(), &shape)
}

fn main() -> Result<()> {
    let steps = std::env::args().nth(1).map_or(Ok(40), |steps| steps.parse())?;
    let gangs = gangway::init(&Mesh::default().tp(2).pp(2))?; // dp_shard is what is left
    let llama = DecoderOptions { vocab: 32, dim: 32, layers: 4, heads: 4, kv_heads: 2, ..Default::default() };
    let mut model = Decoder::new(&llama)?;
    let options = ParallelOptions {
        shard: ShardOptions { strategy: Strategy::FullShard, ..Default::default() }, // over dp_shard
        tensor_parallel: TensorParallelOptions { sequence_parallel: true, ..Default::default() }, // over tp
        pipeline: Some(PipelineOptions { schedule: Some("1f1b".into()), ..Default::default() }), // over pp
        stage_split: StageSplit::ByCost,
        seed: 1,
        ..Default::default()
    };
    model.parallelize(&gangs, &options)?;
    let mut opt = AdamW::new(&model, &AdamWOptions { lr: 1e-2, ..Default::default() })?;
    let (shard, shards) = gangs.data_shard()?; // the ranks of a data coordinate read the same rows
    let options = StepOptions { microbatches: MICROBATCHES, max_grad_norm: 1.0, ..Default::default() };
    let mut loss = f64::MAX;
    for step in 1..=steps {
        let tokens = batch(step, ROWS * shard / shards..ROWS * (shard + 1) / shards)?;
        loss = model.train_step_with(&mut opt, &Batch::new(&tokens, ()), &options)?.loss;
        if gangs.root().rank() == 0 && (step == 1 || step % 10 == 0) {
            println!("step {step}  loss {loss:.3}");
        }
    }
    assert!(loss < 1.0);
    gangs.shutdown(None)
}
