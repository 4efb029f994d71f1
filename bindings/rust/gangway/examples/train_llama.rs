//! Trains a byte-level Llama on a text, sharded over the ranks.
//!   gangrun -n 2 train_llama TEXT OUT [STEPS]
use gangway::*;

const ROWS: usize = 8; // of all ranks together
const SEQUENCE: usize = 64;

/// Rows `first..last` of a step's batch; their places depend on step and row alone, so every mesh sees the
/// same.
fn batch(text: &[u8], step: usize, first: usize, last: usize) -> gangway::Result<(Array<i64>, Array<i64>)> {
    let (mut tokens, mut labels) = (Vec::new(), Vec::new());
    for row in first..last {
        let start = (step * ROWS + row).wrapping_mul(0x9E37_79B9_7F4A_7C15) % (text.len() - SEQUENCE);
        tokens.extend(text[start..start + SEQUENCE].iter().map(|b| *b as i64));
        labels.extend(text[start + 1..start + SEQUENCE + 1].iter().map(|b| *b as i64));
    }
    let shape = [last - first, SEQUENCE];
    Ok((Array::new(tokens, &shape)?, Array::new(labels, &shape)?))
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let (text, out) = match &arguments[..] {
        [_, text, out, ..] => (std::fs::read(text)?, out),
        _ => return Err("usage: train_llama TEXT OUT [STEPS]".into()),
    };
    let steps: usize = arguments.get(3).map_or(Ok(200), |n| n.parse())?;

    let gangs = gangway::init(&Mesh::default())?;
    let mut model = Llama::new(&LlamaOptions { dim: 64, layers: 2, heads: 4, ..Default::default() })?;
    model.parallelize(&gangs, &ParallelOptions { seed: 1, ..Default::default() })?;
    let mut opt = AdamW::new(&model, &AdamWOptions { lr: 3e-3, ..Default::default() })?;
    let options = StepOptions { max_grad_norm: 1.0, ..Default::default() };
    let (index, count) = gangs.data_shard()?;
    let talks = gangs.root().rank() == 0;

    for step in 1..=steps {
        let (tokens, labels) = batch(&text, step, ROWS * index / count, ROWS * (index + 1) / count)?;
        let result =
            model.train_step_with(&mut opt, &Batch::new(&tokens, &labels).shifted(true), &options)?;
        if talks && (step == 1 || step % 20 == 0) {
            println!(
                "step {step}/{steps}  loss {:.3}  {:.0} tokens/s",
                result.loss, result.tokens_per_second
            );
        }
    }
    let prompt: Vec<i64> = b"The ".iter().map(|b| *b as i64).collect();
    let sample = model
        .generate(&prompt, &GenerateOptions { token_count: 60, temperature: 0.8, ..Default::default() })?;
    model.save(out)?;
    if talks {
        let sample: Vec<u8> = sample.into_iter().map(|token| token as u8).collect();
        println!("sample: The {}", String::from_utf8_lossy(&sample).escape_debug());
    }
    gangs.shutdown(None)?;
    Ok(())
}
