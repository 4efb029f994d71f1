//! A run that outlives its ranks: every 5 steps it saves all that changes the next step. A program that is
//! started again goes on from the newest checkpoint, with the losses of a run that was never stopped.
//!   gangrun -n 2 --max-restarts 2 resume TEXT FOLDER [DIE]
//! DIE: before this step rank 1 kills itself, in the first attempt alone.
use gangway::*;

const SEQUENCE: i64 = 32;
const BATCH: i64 = 8;
const STEPS: i64 = 20;
const EVERY: i64 = 5;

extern "C" {
    fn raise(signal: i32) -> i32;
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let (text, folder) = match &arguments[..] {
        [_, text, folder, ..] => (text, folder),
        _ => return Err(Error::from_source("usage: resume TEXT FOLDER [DIE]")),
    };
    let first_attempt = std::env::var("GANGWAY_RESTART_COUNT").map_or(true, |count| count == "0"); // set by gangrun
    let die: i64 = arguments.get(3).filter(|_| first_attempt).map_or(Ok(0), |step| step.parse())?;

    let gangs = gangway::init(&Mesh::default())?;
    let mut model = Decoder::new(&DecoderOptions { dim: 32, layers: 2, heads: 2, ..Default::default() })?;
    model.parallelize(&gangs, &ParallelOptions { seed: 1, ..Default::default() })?;
    let mut opt = AdamW::new(&model, &AdamWOptions { lr: 3e-3, ..Default::default() })?;
    let rows = DatasetOptions { sequence: SEQUENCE, seed: 1, ..Default::default() };
    let mut data = Dataset::new(&[Source::new(text).format("u8")], &rows)?; // a token is a byte
    let options = CheckpointsOptions { every: EVERY, ..Default::default() };
    let mut run = Checkpoints::new(folder, &gangs, &options)?;
    let part = CheckpointPartMut { name: "", model: &mut model, optimizer: Some(&mut opt) };
    let talks = gangs.root().rank() == 0;
    if let Some(state) = run.restore(&mut [part], &RestoreOptions::default())? {
        data.restore(&run.text("data")?, false)?;
        if talks {
            println!("goes on after step {}", state.step);
        }
    }
    for step in data.batches_taken()? + 1..=STEPS {
        if step == die && gangs.root().rank() == 1 {
            unsafe { raise(9) }; // SIGKILL
        }
        let batch = data.next(&gangs, BATCH)?;
        let loss = model.train_step_on(&mut opt, &batch, &StepOptions::default())?.loss;
        if talks {
            println!("step {step}  loss {loss:.17}");
        }
        if run.due(step)? {
            let part = CheckpointPart { name: "", model: &model, optimizer: Some(&opt), carry_from: None };
            let (texts, tokens) = ([("data", &*data.position()?)], step * BATCH * SEQUENCE);
            run.save(&[part], &CheckpointState { step, tokens, texts: &texts, user: &[] })?;
        }
    }
    run.wait()?; // a save copies the values, and a thread writes them
    drop(run);
    gangs.shutdown(None)
}
