//! What a call costs in Rust, as a ratio to C in the same process. Started by run.sh over two ranks.
use gangway::*;
use std::time::Instant;

#[link(name = "calls")]
extern "C" {
    fn bench_open();
    fn bench_close();
    fn bench_rank(calls: usize) -> f64;
    fn bench_all_reduce(count: usize, calls: usize) -> f64;
    fn bench_round_trip(calls: usize) -> f64;
}

const BATCHES: usize = 201;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Batches of C and of Rust in turn, so that both see the same machine.
fn compare(
    gang: &Gang,
    name: &str,
    calls: usize,
    mut c: impl FnMut(usize) -> f64,
    mut own: impl FnMut(usize) -> Result<()>,
) -> Result<()> {
    let (mut in_c, mut in_rust) = (Vec::new(), Vec::new());
    for _ in 0..BATCHES {
        gang.barrier()?;
        in_c.push(c(calls) / calls as f64);
        gang.barrier()?;
        let start = Instant::now();
        own(calls)?;
        in_rust.push(start.elapsed().as_secs_f64() / calls as f64);
    }
    let (c, rust) = (1e9 * median(in_c), 1e9 * median(in_rust));
    if gang.rank() == 0 {
        println!("rust   {name:<24} {c:>10.1} {rust:>10.1} {:>7.2}", rust / c);
    }
    Ok(())
}

fn all_reduce(gang: &Gang, name: &str, count: usize, calls: usize) -> Result<()> {
    let mut x = gang.alloc::<f32>(count)?;
    compare(
        gang,
        name,
        calls,
        |calls| unsafe { bench_all_reduce(count, calls) },
        |calls| (0..calls).try_for_each(|_| gang.all_reduce(&mut x, Reduce::Max)),
    )
}

fn main() -> Result<()> {
    unsafe { bench_open() };
    let gang = Gang::new(&Default::default())?;
    compare(
        &gang,
        "rank()",
        100_000,
        |calls| unsafe { bench_rank(calls) },
        |calls| {
            let mut kept = 0;
            (0..calls).for_each(|_| unsafe { std::ptr::write_volatile(&mut kept, gang.rank()) });
            Ok(())
        },
    )?;
    all_reduce(&gang, "all_reduce of 8 bytes", 2, 200)?;
    all_reduce(&gang, "all_reduce of 64 KiB", 16384, 50)?;
    let mut model = Custom::new("copy")
        .shapes(|_| Ok(()))
        .forward(|call| {
            call.outputs[0].slice_mut::<f32>()?.copy_from_slice(call.inputs[0].slice::<f32>()?);
            Ok(())
        })
        .backward_input(|call| {
            if let (Some(dx), Some(dy)) = (&mut call.input_grads[0], &call.output_grads[0]) {
                dx.slice_mut::<f32>()?.copy_from_slice(dy.slice::<f32>()?);
            }
            Ok(())
        })
        .build()?;
    model.materialize(None, 0, DType::F32)?;
    let mut frame = Frame::new(&model, &FrameOptions::default())?;
    let x = Array::new(vec![1f32, 2.0, 3.0, 4.0], &[2, 2])?;
    compare(
        &gang,
        "custom-module round trip",
        1000,
        |calls| unsafe { bench_round_trip(calls) },
        |calls| {
            (0..calls).try_for_each(|_| {
                let y = model.forward(&x, Some(&mut frame))?;
                model.backward(&x, &mut frame).map(|dx| drop((y, dx)))
            })
        },
    )?;
    gang.shutdown(None)?;
    unsafe { bench_close() };
    Ok(())
}
