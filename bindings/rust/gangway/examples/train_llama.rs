//! Trains a byte-level Llama on a text, sharded over the ranks.
//!   gangrun -n 2 train_llama TEXT FOLDER [STEPS] [cpu|cuda]
use gangway::*;

const ROWS: usize = 8; // a batch of all ranks together
const SEQUENCE: usize = 64;

/// Rows `first..last` of a step's batch. Their places depend on step and row alone, so on no mesh.
fn batch(text: &[u8], step: usize, first: usize, last: usize) -> Result<Array<i64>> {
    let start = |row| {
        ((step * ROWS + row) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) % (text.len() - SEQUENCE) as u64
    };
    let rows = (first..last).map(|row| &text[start(row) as usize..][..SEQUENCE]);
    Array::new(rows.flatten().map(|byte| *byte as i64).collect(), &[last - first, SEQUENCE])
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let (text, folder) = match &arguments[..] {
        [_, text, folder, ..] => (std::fs::read(text)?, folder),
        _ => return Err(Error::from_source("usage: train_llama TEXT FOLDER [STEPS] [cpu|cuda]")),
    };
    let steps: usize = arguments.get(3).map_or(Ok(200), |n| n.parse())?;

    let gang = GangOptions { device: arguments.get(4).cloned(), ..Default::default() };
    let gangs = Gangs::new(&Gang::new(&gang)?, &Mesh::default())?;
    let mut model = Decoder::new(&DecoderOptions { dim: 64, layers: 4, heads: 4, ..Default::default() })?;
    let options = ParallelOptions {
        shard: ShardOptions { strategy: Strategy::FullShard, ..Default::default() },
        seed: 1,
        ..Default::default()
    };
    model.parallelize(&gangs, &options)?;
    let mut opt = AdamW::new(&model, &AdamWOptions { lr: 3e-3, ..Default::default() })?;
    let options = StepOptions { max_grad_norm: 1.0, ..Default::default() };
    let (shard, shards) = gangs.data_shard()?; // which rows of the batch are this rank's
    let (first, last) = (ROWS * shard / shards, ROWS * (shard + 1) / shards);
    for step in 1..=steps {
        let tokens = batch(&text, step, first, last)?; // the labels are the tokens: the library shifts them
        let result = model.train_step_with(&mut opt, &Batch::new(&tokens, ()), &options)?;
        if shard == 0 && (step == 1 || step % 20 == 0) {
            let (loss, speed) = (result.loss, result.tokens_per_second);
            println!("step {step}/{steps}  loss {loss:.3}  {speed:.0} tokens/s");
        }
    }
    let prompt = b"The ".map(i64::from);
    let sampling = GenerateOptions { token_count: 64, temperature: 0.8, ..Default::default() };
    let sample: Vec<u8> = model.generate(&prompt, &sampling)?.into_iter().map(|token| token as u8).collect();
    if shard == 0 {
        println!("sample: The {}", String::from_utf8_lossy(&sample));
    }
    model.save(folder)?; // Hugging Face's names, safetensors
    gangs.shutdown(None)
}
