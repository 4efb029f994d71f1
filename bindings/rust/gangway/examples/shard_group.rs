//! Own compute and own loop; gangway only shards: y = w x + b, two microbatches a step.
//!   gangrun -n 2 shard_group
use gangway::{
    AdamW, AdamWOptions, Mesh, Module, ParameterOptions, Result, ShardGroup, ShardOptions, StepOptions, View,
};

const FEATURES: usize = 10;
const ROWS: usize = 32;
const MICROBATCHES: usize = 2;

/// The program's own model: the squared errors' sum, and its gradients.
fn own_compute(w: &[f32], b: f32, random: &mut u32) -> (f64, Vec<f32>, f32) {
    let (mut loss, mut dw, mut db) = (0.0, vec![0.0; FEATURES], 0.0);
    for _ in 0..ROWS {
        let mut next = || {
            *random = random.wrapping_mul(1664525).wrapping_add(1013904223);
            (*random >> 8) as f32 / 16777216.0 - 0.5
        };
        let x: Vec<f32> = (0..FEATURES).map(|_| next()).collect();
        let truth: f32 = 0.5 + x.iter().enumerate().map(|(i, x)| i as f32 * 0.1 * x).sum::<f32>();
        let error = b - truth + x.iter().zip(w).map(|(x, w)| x * w).sum::<f32>();
        loss += 0.5 * (error * error) as f64;
        dw.iter_mut().zip(&x).for_each(|(dw, x)| *dw += error * x);
        db += error;
    }
    (loss, dw, db)
}

fn main() -> Result<()> {
    let gangs = gangway::init(&Mesh::default())?;
    let parameters = vec![ParameterOptions::new("w", &[FEATURES]), ParameterOptions::new("b", &[1])];
    let group = ShardGroup::new(Some(&gangs), "line", parameters, &ShardOptions::default(), 1)?;
    let mut model = Module::from_groups(vec![group])?;
    let mut opt = AdamW::new(&model, &AdamWOptions { lr: 0.05, ..Default::default() })?;
    let items = (ROWS * MICROBATCHES * gangs.root().size()) as f64; // of a step, over all ranks
    let step = StepOptions { scale: 1.0 / items, max_grad_norm: 1.0, ..Default::default() };
    let mut random = 11 + gangs.root().rank() as u32;
    let mut mean = f64::MAX;
    for _ in 0..200 {
        let mut group = model.group(0)?;
        let mut sum = 0.0;
        for _ in 0..MICROBATCHES {
            sum += group.unsharded(|full| {
                let (w, b) = (full.value(0)?.slice::<f32>()?, full.value(1)?.slice::<f32>()?[0]);
                let (loss, dw, db) = own_compute(w, b, &mut random);
                full.add_gradient(0, &View::new(&dw, &[FEATURES])?)?;
                full.add_gradient(1, &View::new(&[db], &[1])?)?;
                Ok(loss)
            })?;
        }
        group.reduce()?;
        opt.step(&mut model, &step)?;
        mean = gangs.root().all_sum(sum)? / items;
    }
    println!("loss {mean:.6}");
    assert!(mean < 0.001);
    gangs.shutdown(None)
}
