//! Own compute as a module: a regression, written in Rust, sharded and trained like a built-in layer.
//!   gangrun -n 2 custom_module
use gangway::*;

const FEATURES: usize = 8;
const ROWS: usize = 64;

/// Half the sum of squared errors of y = w x; the true w[i] is i / 8. Adds its gradient times `seed` to dw.
fn own_compute(w: &[f32], x: &[f32], dw: Option<&mut [f32]>, seed: f64) -> f64 {
    let (mut loss, mut sums) = (0.0, [0.0; FEATURES]);
    for x in x.chunks(FEATURES) {
        let error: f64 = (0..FEATURES).map(|i| (w[i] as f64 - i as f64 / 8.0) * x[i] as f64).sum();
        (0..FEATURES).for_each(|i| sums[i] += error * x[i] as f64);
        loss += 0.5 * error * error;
    }
    dw.into_iter().flatten().zip(sums).for_each(|(dw, sum)| *dw += (seed * sum) as f32);
    loss
}

/// x [ROWS, FEATURES], data without gradient -> loss sum, weight; f32 alone, as `accepts` could say.
fn forward(call: &mut Call<'_>) -> Result<()> {
    let (w, x) = (call.parameters[0].slice()?, call.inputs[0].slice()?);
    call.outputs[0].slice_mut::<f64>()?[0] = own_compute(w, x, None, 0.0);
    call.outputs[1].slice_mut::<f64>()?[0] = ROWS as f64;
    Ok(())
}

fn backward(call: &mut Call<'_>) -> Result<()> {
    let (w, x, seed) = (call.parameters[0].slice()?, call.inputs[0].slice()?, call.loss_scale());
    let dw = call.parameter_grads[0].as_mut().map(|dw| dw.slice_mut()).transpose()?;
    own_compute(w, x, dw, seed);
    call.input_grads.iter_mut().flatten().try_for_each(|dx| dx.slice_mut::<f32>().map(|dx| dx.fill(0.0)))
}

fn main() -> Result<()> {
    let gangs = gangway::init(&Mesh::default())?;
    let custom = Custom::new("regression").outputs(2).parameter(ParameterOptions::new("w", &[FEATURES]));
    let mut model = custom.forward(forward).backward_input(backward).build()?;
    model.parallelize(&gangs, &Default::default())?;
    let mut opt = AdamW::new(&model, &AdamWOptions { lr: 0.02, ..Default::default() })?;
    let ((shard, shards), mut loss) = (gangs.data_shard()?, f64::MAX);
    for step in 1..=100 {
        let n = ROWS * (step * shards + shard); // the first row: made up, the same in every language
        let made = |i: usize| ((n + i / FEATURES) * (i % FEATURES + 1) * 97 % 1021) as f32;
        let x = (0..ROWS * FEATURES).map(|i| (made(i) - 510.0) / 1024.0);
        let x = Array::new(x.collect(), &[ROWS, FEATURES])?;
        let batch = Batch::new(&x, ()).weight(ROWS as i64);
        loss = model.train_step_with(&mut opt, &batch, &Default::default())?.loss;
        if shard == 0 && step % 20 == 0 {
            println!("step {step}  loss {loss:.6}");
        }
    }
    assert!(loss < 0.01);
    gangs.shutdown(None)
}
