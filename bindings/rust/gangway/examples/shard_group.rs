//! A program with its own compute and its own loop; gangway only shards: y = w x, two microbatches a step.
//!   gangrun -n 2 shard_group
use gangway::*;

const FEATURES: usize = 10;
const ROWS: usize = 32;
const MICROBATCHES: usize = 2;

/// Half the sum of squared errors of y = w x; the true w[i] is 0.1 i. Adds its gradient to dw.
fn own_compute(w: &[f32], dw: &mut [f32], random: &mut u32) -> f64 {
    let mut loss = 0.0;
    for _ in 0..ROWS {
        let x = std::iter::repeat_with(|| {
            *random = random.wrapping_mul(1664525).wrapping_add(1013904223);
            (*random >> 8) as f32 / 16777216.0 - 0.5
        });
        let x: Vec<f32> = x.take(FEATURES).collect();
        let error: f32 = (0..FEATURES).map(|i| (w[i] - 0.1 * i as f32) * x[i]).sum();
        dw.iter_mut().zip(&x).for_each(|(dw, x)| *dw += error * x);
        loss += 0.5 * (error * error) as f64;
    }
    loss
}

fn main() -> Result<()> {
    let gangs = gangway::init(&Mesh::default())?;
    let parameters = vec![ParameterOptions::new("w", &[FEATURES])];
    let group = ShardGroup::new(Some(&gangs), "line", parameters, &ShardOptions::default(), 1)?;
    let mut model = Module::from_groups(vec![group])?;
    let mut opt = AdamW::new(&model, &AdamWOptions { lr: 0.05, ..Default::default() })?;
    let (root, mut mean) = (gangs.root(), f64::MAX);
    let items = (ROWS * MICROBATCHES * root.size()) as f64; // of a step, over all ranks
    let options = StepOptions { scale: 1.0 / items, max_grad_norm: 1.0, ..Default::default() };
    let mut random = 11 + root.rank() as u32;
    for step in 1..=200 {
        let (mut group, mut loss) = (model.group(0)?, 0.0);
        for _ in 0..MICROBATCHES {
            loss += group.unsharded(|full| {
                let w = full.value(0)?;
                let w = w.slice::<f32>()?;
                Ok(own_compute(w, full.gradient(0)?.slice_mut()?, &mut random))
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
