//! What a call costs in Rust. Started by run.sh over two ranks; calls.c says what is measured.
use gangway::*;
use std::os::raw::{c_char, c_int};
use std::time::Instant;

#[link(name = "calls")]
extern "C" {
    fn bench_open(language: *const c_char);
    fn bench_close();
    fn bench_batches() -> usize;
    fn bench_calls(which: c_int) -> usize;
    fn bench_elements(which: c_int) -> usize;
    fn bench_c(which: c_int);
    fn bench_own(which: c_int, seconds: f64);
}
const RANK: c_int = 0;
const SMALL: c_int = 1;
const LARGE: c_int = 2;
const ROUND_TRIP: c_int = 3;

fn compare(which: c_int, mut call: impl FnMut() -> Result<()>) -> Result<()> {
    let (batches, calls) = unsafe { (bench_batches(), bench_calls(which)) };
    for _ in 0..batches {
        unsafe { bench_c(which) };
        let start = Instant::now();
        for _ in 0..calls {
            call()?;
        }
        unsafe { bench_own(which, start.elapsed().as_secs_f64()) };
    }
    Ok(())
}

fn copies() -> Result<Module> {
    let custom = Custom::new("copy").shapes(|_| Ok(())).forward(|call| {
        call.outputs[0].slice_mut::<f32>()?.copy_from_slice(call.inputs[0].slice::<f32>()?);
        Ok(())
    });
    let mut model = custom
        .backward_input(|call| {
            if let (Some(dx), Some(dy)) = (&mut call.input_grads[0], &call.output_grads[0]) {
                dx.slice_mut::<f32>()?.copy_from_slice(dy.slice::<f32>()?);
            }
            Ok(())
        })
        .build()?;
    model.materialize(None, 0, DType::F32)?;
    Ok(model)
}

fn main() -> Result<()> {
    unsafe { bench_open(b"Rust\0".as_ptr().cast()) };
    let gang = Gang::new(&Default::default())?;
    let mut kept = 0;
    compare(RANK, || {
        unsafe { std::ptr::write_volatile(&mut kept, gang.rank()) };
        Ok(())
    })?;
    for which in [SMALL, LARGE] {
        let mut x = gang.alloc::<f32>(unsafe { bench_elements(which) })?;
        compare(which, || gang.all_reduce(&mut x, Reduce::Max).run())?;
    }
    let mut model = copies()?;
    let mut frame = Frame::new(&model, &FrameOptions::default())?;
    let x = Array::new(vec![1f32, 2.0, 3.0, 4.0], &[2, 2])?;
    compare(ROUND_TRIP, || {
        let y = model.forward(&x, Some(&mut frame))?;
        model.backward(&x, &mut frame).map(|dx| drop((y, dx)))
    })?;
    gang.shutdown(None)?;
    unsafe { bench_close() };
    Ok(())
}
