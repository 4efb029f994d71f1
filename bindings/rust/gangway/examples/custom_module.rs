//! Own compute as a module: a regression, written in Rust, sharded and trained like a built-in layer.
//!   gangrun -n 2 custom_module
use gangway::*;

const FEATURES: usize = 8;
const ROWS: usize = 64;

/// Half the sum of squared errors of y = w x; the true w[i] is 0.1 i. Adds its gradient times `seed` to dw.
fn own_compute(w: &[f32], x: &[f32], mut dw: Option<&mut [f32]>, seed: f32) -> f64 {
    let mut loss = 0.0;
    for x in x.chunks(FEATURES) {
        let error: f32 = (0..FEATURES).map(|i| (w[i] - 0.1 * i as f32) * x[i]).sum();
        if let Some(dw) = &mut dw {
            (0..FEATURES).for_each(|i| dw[i] += seed * error * x[i]);
        }
        loss += 0.5 * (error * error) as f64;
    }
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
    let (w, x, seed) = (call.parameters[0].slice()?, call.inputs[0].slice()?, call.loss_seed() as f32);
    let dw = call.parameter_grads[0].as_mut().map(|dw| dw.slice_mut()).transpose()?;
    own_compute(w, x, dw, seed);
    call.input_grads.iter_mut().flatten().try_for_each(|dx| dx.slice_mut::<f32>().map(|dx| dx.fill(0.0)))
}

fn main() -> Result<()> {
    let gangs = gangway::init(&Mesh::default())?;
    let custom = Custom::new("regression").outputs(2).parameter(ParameterOptions::new("w", &[FEATURES]));
    let mut model = custom.forward(forward).backward_input(backward).build()?;
    model.parallelize(&gangs, &Default::default())?;
    let mut opt = AdamW::new(&model, &AdamWOptions { lr: 0.05, ..Default::default() })?;
    let (shard, mut loss) = (gangs.data_shard()?.0, f64::MAX);
    let mut random = 7 + shard as u32;
    for step in 1..=100 {
        let x = std::iter::repeat_with(|| {
            random = random.wrapping_mul(1664525).wrapping_add(1013904223);
            (random >> 8) as f32 / 16777216.0 - 0.5
        });
        let x = Array::new(x.take(ROWS * FEATURES).collect(), &[ROWS, FEATURES])?;
        let batch = Batch::new(&x, ()).weight(ROWS as i64);
        loss = model.train_step_with(&mut opt, &batch, &Default::default())?.loss;
        if shard == 0 && step % 20 == 0 {
            println!("step {step}  loss {loss:.5}");
        }
    }
    assert!(loss < 0.01);
    gangs.shutdown(None)
}
