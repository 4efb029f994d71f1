//! Pieces [3, 7, 4], one of each worker, are joined along the last dim; then the adjoint.
//!   gangrun -n 2 partition_all_gather
use gangway::*;

/// <a, b>, summed over all workers.
fn inner(gang: &Gang, a: &[f64], b: &[f64]) -> Result<f64> {
    gang.all_sum(a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>())
}

fn main() -> Result<()> {
    let gangs = gangway::init(&Mesh::default())?;
    let gang = gangs.root();
    let (rank, workers) = (gang.rank(), gang.size());
    let grid = Partition::new(gang)?.cartesian(&[1, 1, workers])?; // each dim cuts a dim of the tensor
    let mut gather = Movement::all_gather(&grid, Along::Axes(&[2]), &MovementOptions::default())?;

    // Made-up numbers that differ between ranks and places.
    let numbers = |count: usize, first: usize, factor: usize, modulus: usize| -> Vec<f64> {
        (1..=count).map(|i| ((rank + first) * i * factor % modulus) as f64 / 1000.0 - 1.0).collect()
    };
    let x = Array::new(numbers(3 * 7 * 4, 3, 7919, 2003), &[3, 7, 4])?;
    let y = Array::new(numbers(3 * 7 * 4 * workers, 5, 6271, 1999), &[3, 7, 4 * workers])?;
    let joined = gather.forward(&x)?; // [3, 7, 4 * workers]
    let dx = gather.backward(&y)?; // [3, 7, 4]

    let left = inner(gang, joined.as_view().slice()?, &y)?;
    let right = inner(gang, &x, dx.as_view().slice()?)?;
    if rank == 0 {
        println!("{:?}: <F x, y> = {left:.9}, <x, F* y> = {right:.9}", joined.as_view().shape());
    }
    assert!((left - right).abs() < 1e-9);
    gangs.shutdown(None)
}
