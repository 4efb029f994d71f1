//! Evaluation and reload: the loss of a model on a text that it is not trained on, and the same loss of a
//! model that is made of the saved folder.
//!   gangrun -n 2 evaluate TEXT HELD_OUT_TEXT FOLDER
use gangway::*;

const BATCH: i64 = 8;
const BATCHES: usize = 4; // of an evaluation

/// The mean loss over the same rows at each call. It changes nothing of the model.
fn evaluate(model: &mut Module, data: &mut Dataset, gangs: &Gangs) -> Result<f64> {
    data.set_rows_taken(0)?;
    let mut sum = 0.0;
    for _ in 0..BATCHES {
        let batch = data.next(gangs, BATCH)?;
        sum += model.eval_step_on(&batch, &StepOptions::default())?.loss;
    }
    Ok(sum / BATCHES as f64)
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let (text, held_out, folder) = match &arguments[..] {
        [_, text, held_out, folder] => (text, held_out, folder),
        _ => return Err(Error::from_source("usage: evaluate TEXT HELD_OUT_TEXT FOLDER")),
    };
    let gangs = gangway::init(&Mesh::default())?;
    let mut model = Decoder::new(&DecoderOptions { dim: 32, layers: 2, heads: 2, ..Default::default() })?;
    model.parallelize(&gangs, &ParallelOptions { seed: 1, ..Default::default() })?;
    let mut opt = AdamW::new(&model, &AdamWOptions { lr: 3e-3, ..Default::default() })?;
    let rows = DatasetOptions { sequence: 32, seed: 1, ..Default::default() };
    let mut data = Dataset::new(&[Source::new(text).format("u8")], &rows)?; // a token is a byte
    let mut validation = Dataset::new(&[Source::new(held_out).format("u8")], &rows)?;
    let talks = gangs.root().rank() == 0;
    let mut loss = 0.0;
    for step in 1..=20 {
        let batch = data.next(&gangs, BATCH)?;
        model.train_step_on(&mut opt, &batch, &StepOptions::default())?;
        if step % 10 == 0 {
            loss = evaluate(&mut model, &mut validation, &gangs)?;
            if talks {
                println!("step {step}  validation loss {loss:.6}");
            }
        }
    }
    model.save(folder)?; // Hugging Face's names, safetensors
    let mut reloaded = from_pretrained(folder, &gangs, &ParallelOptions::default())?;
    let again = evaluate(&mut reloaded, &mut validation, &gangs)?;
    if talks {
        println!("reloaded  validation loss {again:.6}");
    }
    assert_eq!(again, loss);
    gangs.shutdown(None)
}
