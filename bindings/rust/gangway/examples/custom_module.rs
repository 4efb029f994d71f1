//! Own compute as a module: a regression y = w x + b, sharded and trained like a built-in layer.
//!   gangrun -n 2 custom_module
use gangway::*;

const IN: usize = 8;
const ROWS: usize = 64;

/// Inputs: x [rows, IN], y [rows]; outputs: loss sum, weight.
fn forward(call: &mut Call<'_>) -> Result<()> {
    let (x, y) = (call.inputs[0].slice::<f32>()?, call.inputs[1].slice::<f32>()?);
    let (w, b) = (call.parameters[0].slice::<f32>()?, call.parameters[1].slice::<f32>()?[0]);
    let error = |(x, y): (&[f32], &f32)| b - y + x.iter().zip(w).map(|(x, w)| x * w).sum::<f32>();
    let errors: Vec<f32> = x.chunks(IN).zip(y).map(error).collect();
    call.outputs[0].slice_mut::<f64>()?[0] = errors.iter().map(|e| 0.5 * (e * e) as f64).sum();
    call.outputs[1].slice_mut::<f64>()?[0] = errors.len() as f64;
    call.set_state(errors) // kept for backward
}

fn backward(call: &mut Call<'_>) -> Result<()> {
    for grad in call.input_grads.iter_mut().flatten() {
        grad.slice_mut::<f32>()?.fill(0.0); // data: nobody needs its gradient, but it may be asked for
    }
    let errors = call.state::<Vec<f32>>()?;
    let (x, seed) = (call.inputs[0].slice::<f32>()?, call.loss_seed() as f32); // 1/N: the mean over all ranks
    for (e, x) in errors.iter().zip(x.chunks(IN)) {
        for (grad, values) in call.parameter_grads.iter_mut().flatten().zip([x, &[1.0]]) {
            grad.slice_mut::<f32>()?.iter_mut().zip(values).for_each(|(grad, x)| *grad += seed * e * x);
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    let gangs = gangway::init(&Mesh::default())?;
    let mut model = Custom::new("regression")
        .inputs(2)
        .outputs(2)
        .parameter(ParameterOptions::new("weight", &[IN]))
        .parameter(ParameterOptions::new("bias", &[1]).zeros())
        .accepts(|dtype| dtype == DType::F32)
        .shapes(|call| (0..2).try_for_each(|output| call.output(output, DType::F64, &[1])))
        .forward(forward)
        .backward_input(backward)
        .build()?;
    model.parallelize(&gangs, &Default::default())?;
    let mut opt = AdamW::new(&model, &AdamWOptions { lr: 0.05, ..Default::default() })?;
    let (shard, mut loss) = (gangs.data_shard()?.0, f64::MAX);
    for step in 0..200 {
        let number = |i| (((2 * step + shard) * ROWS * IN + i) as f32).sin();
        let x: Vec<f32> = (0..ROWS * IN).map(number).collect();
        let y: Vec<f32> = x.chunks(IN).map(|x| 0.5 + x.iter().sum::<f32>()).collect(); // the truth
        let (x, y) = (Array::new(x, &[ROWS, IN])?, Array::new(y, &[ROWS])?);
        let batch = Batch::new((&x, &y), ()).weight(ROWS as i64);
        loss = model.train_step_with(&mut opt, &batch, &Default::default())?.loss;
    }
    println!("loss {loss:.6}");
    assert!(loss < 0.001);
    gangs.shutdown(None)
}
