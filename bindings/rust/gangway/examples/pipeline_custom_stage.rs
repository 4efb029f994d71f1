//! A pipeline of stages that the program computes by itself: each rank has one, y = x w; together they learn to halve x.
//!   gangrun -n 4 pipeline_custom_stage
use gangway::*;

const WIDTH: usize = 8;
const ROWS: usize = 16;
const MICROBATCHES: usize = 8;

/// w[in][out] and its gradient; x and dy of a microbatch stay until the weight gradient is done.
#[derive(Default)]
struct Stage {
    w: [[f32; WIDTH]; WIDTH],
    dw: [[f32; WIDTH]; WIDTH],
    x: [Option<Tensor>; MICROBATCHES],
    dy: [Option<Tensor>; MICROBATCHES],
    loss: f64, // of the last stage
}

/// Rows of x times w(in, out).
fn times(x: &[f32], w: impl Fn(usize, usize) -> f32) -> Result<Array<f32>> {
    let cell = |n: usize| (0..WIDTH).fold(0.0, |sum, i| sum + x[n / WIDTH * WIDTH + i] * w(i, n % WIDTH));
    Array::new((0..ROWS * WIDTH).map(cell).collect(), &[ROWS, WIDTH])
}

impl Stage {
    fn forward(&mut self, action: &Action<'_>, data: &Array<f32>) -> Result<Array<f32>> {
        let m = action.microbatch.unwrap_or(0);
        let x = if action.first_stage { Some(Tensor::copy(data)?) } else { action.keep(0)? };
        self.x[m] = x;
        let y = times(slice(&self.x[m])?, |i, o| self.w[i][o])?;
        if action.last_stage {
            let error = y.iter().zip(data.iter()).map(|(y, x)| y - x / 2.0).collect();
            let error = Array::new(error, &[ROWS, WIDTH])?;
            self.loss += error.iter().map(|e| 0.5 * (e * e) as f64).sum::<f64>();
            self.dy[m] = Some(Tensor::copy(&error)?);
        }
        Ok(y)
    }

    fn input_gradient(&mut self, action: &Action<'_>) -> Result<Array<f32>> {
        let m = action.microbatch.unwrap_or(0);
        if !action.last_stage {
            self.dy[m] = action.keep(0)?;
        }
        times(slice(&self.dy[m])?, |o, i| self.w[i][o])
    }

    fn weight_gradient(&mut self, m: usize) -> Result<()> {
        let (x, dy) = (self.x[m].take(), self.dy[m].take());
        for (x, dy) in slice(&x)?.chunks(WIDTH).zip(slice(&dy)?.chunks(WIDTH)) {
            (0..WIDTH * WIDTH).for_each(|n| self.dw[n / WIDTH][n % WIDTH] += x[n / WIDTH] * dy[n % WIDTH]);
        }
        Ok(())
    }

    fn compute(&mut self, action: &Action<'_>, data: &[Array<f32>]) -> Result<()> {
        let m = action.microbatch.unwrap_or(0);
        match action.kind {
            ActionKind::Forward => {
                let y = self.forward(action, &data[m])?;
                return if action.last_stage { action.done(()) } else { action.done(&y) };
            }
            ActionKind::WeightGradient => self.weight_gradient(m)?,
            kind => {
                let dx = self.input_gradient(action)?;
                if kind == ActionKind::Backward {
                    self.weight_gradient(m)?;
                }
                if !action.first_stage {
                    return action.done(&dx);
                }
            }
        }
        action.done(())
    }
}

fn slice(kept: &Option<Tensor>) -> Result<&[f32]> {
    kept.as_ref().expect("the schedule brings it first").as_view().slice()
}

fn main() -> Result<()> {
    let gang = Gang::new(&Default::default())?;
    let options = PipelineOptions { schedule: Some("zb-h1".into()), microbatches: 8, ..Default::default() };
    let mut pipe = Pipeline::new(&gang, &options)?;
    let mut stage = Stage::default();
    (0..WIDTH).for_each(|i| stage.w[i][i] = 1.0);
    let made = |i: usize| ((i * 97 % 1021) as f32 - 510.0) / 512.0; // the same in every language
    let batch = |m: usize| (0..ROWS * WIDTH).map(|i| made(m * ROWS * WIDTH + i)).collect();
    let data = (0..MICROBATCHES).map(|m| Array::new(batch(m), &[ROWS, WIDTH]));
    let data = data.collect::<Result<Vec<_>>>()?;
    let (items, mut loss) = ((MICROBATCHES * ROWS) as f32, f64::MAX);
    for step in 1..=80 {
        while let Some(action) = pipe.next()? {
            stage.compute(&action, &data)?;
        }
        let (w, dw) = (stage.w.iter_mut().flatten(), stage.dw.iter_mut().flatten());
        w.zip(dw).for_each(|(w, dw)| *w -= 0.3 * std::mem::take(dw) / items);
        loss = gang.all_sum(std::mem::take(&mut stage.loss) / items as f64)?;
        if gang.rank() == 0 && step % 20 == 0 {
            println!("step {step}  loss {loss:.6}");
        }
    }
    drop(pipe);
    assert!(loss < 0.001);
    gang.shutdown(None)
}
