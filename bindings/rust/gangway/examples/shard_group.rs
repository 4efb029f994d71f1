//! A program with its own compute and its own loop; gangway only shards: y = w x, two microbatches a step.
//!   gangrun -n 2 shard_group
use gangway::*;

const FEATURES: usize = 10;
const ROWS: usize = 32;
const MICROBATCHES: usize = 2;

/// Half the sum of squared errors of y = w x over rows from the n-th on, which are made up, the same in every
/// language; the true w[i] is i / 8. Adds its gradient to dw.
fn own_compute(w: &[f32], dw: &mut [f32], n: usize) -> f64 {
    let (mut loss, mut sums) = (0.0, [0.0; FEATURES]);
    for n in n..n + ROWS {
        let x = |i: usize| ((n * (i + 1) * 97 % 1021) as f64 - 510.0) / 1024.0;
        let error: f64 = (0..FEATURES).map(|i| (w[i] as f64 - i as f64 / 8.0) * x(i)).sum();
        (0..FEATURES).for_each(|i| sums[i] += error * x(i));
        loss += 0.5 * error * error;
    }
    dw.iter_mut().zip(sums).for_each(|(dw, sum)| *dw += sum as f32);
    loss
}

fn main() -> Result<()> {
    let gangs = gangway::init(&Mesh::default())?;
    let parameters = vec![ParameterOptions::new("w", &[FEATURES])];
    let group = ShardGroup::new(&gangs, "line", parameters, &ShardOptions::default(), 1)?;
    let mut model = Module::from_groups(vec![group])?;
    let mut opt = AdamW::new(&model, &AdamWOptions { lr: 0.02, ..Default::default() })?;
    let (root, mut mean) = (gangs.root(), f64::MAX);
    let items = (ROWS * MICROBATCHES * root.size()) as f64; // of a step, over all ranks
    let options = StepOptions { scale: 1.0 / items, max_grad_norm: 1.0, ..Default::default() };
    for step in 1..=200 {
        let (mut group, mut loss) = (model.group(0)?, 0.0);
        for m in 0..MICROBATCHES {
            let n = ROWS * ((step * MICROBATCHES + m) * root.size() + root.rank());
            loss += group.unsharded(|full| {
                let w = full.value(0)?;
                let w = w.slice::<f32>()?;
                Ok(own_compute(w, full.gradient(0)?.slice_mut()?, n))
            })?;
        }
        group.reduce()?;
        opt.step(&mut model, &options)?;
        mean = root.all_sum(loss)? / items;
        if root.rank() == 0 && step % 50 == 0 {
            println!("step {step}  loss {mean:.6}");
        }
    }
    assert!(mean < 0.001);
    gangs.shutdown(None)
}
