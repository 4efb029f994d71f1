//! Tensor parallelism of a model of your own: a plan says which modules are split over the ranks, and how.
//! The model learns the same on any number of ranks.
//!   gangrun -n 2 parallel_plan
use gangway::*;

const ROWS: usize = 16;
const INPUTS: usize = 8;
/// Columns, then rows, so that one sum at the end of the MLP brings the ranks together.
const MLP_PLAN: &str = "1.gate_proj -> colwise\n1.up_proj -> colwise\n1.down_proj -> rowwise";

fn make_model(gangs: &Gangs) -> Result<Module> {
    let layers =
        vec![Linear::new(INPUTS as i64, 32, true)?, Mlp::new(32, 64, false)?, Linear::new(32, 1, true)?];
    let mut model = Sequential::new(layers)?; // named 0, 1 and 2
    let rows = vec![
        PlanRow { output: Some(Placement::Replicate), ..PlanRow::new("0", Style::Colwise) }, // outputs are gathered
        PlanRow { input: Some(Placement::Replicate), ..PlanRow::new("2", Style::Rowwise) }, // each takes its part
    ];
    let plan = TensorParallelOptions { plan: Some(MLP_PLAN.to_owned()), rows, ..Default::default() };
    model.tensor_parallel(gangs, &plan)?;
    model.fully_shard("", gangs, &ShardOptions::default())?; // what tp has left of each parameter
    model.materialize(gangs, 1, DType::F64)?;
    Ok(model)
}

fn main() -> Result<()> {
    let gangs = gangway::init(&Mesh::default().dp_shard(1).tp(-1))?; // all ranks are those of tp
    let mut model = make_model(&gangs)?;
    let talks = gangs.root().rank() == 0;
    for parameter in model.parameters()?.iter().filter(|_| talks) {
        let info = parameter.info()?;
        println!("{:<18} {}", info.name, info.layout);
    }
    let mut opt = AdamW::new(&model, &AdamWOptions { lr: 0.01, ..Default::default() })?;
    let mut frame = Frame::new(&model, &FrameOptions::default())?;
    for step in 1..=100 {
        let number = |i: usize| ((step * 131 + i * i) * 7919 % 2003) as f64 / 1000.0 - 1.0;
        let x: Vec<f64> = (0..ROWS * INPUTS).map(number).collect();
        let outputs = model.forward(&View::new(&x, &[ROWS, 1, INPUTS])?, Some(&mut frame))?; // rows of one token
        let y = outputs[0].as_view().slice::<f64>()?;
        // The mean squared distance from x0 - x1.
        let differences: Vec<f64> = y.iter().zip(x.chunks(INPUTS)).map(|(y, x)| y - (x[0] - x[1])).collect();
        let loss: f64 = differences.iter().map(|difference| difference * difference / ROWS as f64).sum();
        let gradient: Vec<f64> =
            differences.iter().map(|difference| 2.0 * difference / ROWS as f64).collect();
        model.backward(&View::new(&gradient, &[ROWS, 1, 1])?, &mut frame)?;
        opt.step(&mut model, &StepOptions::default())?;
        if talks && (step == 1 || step % 25 == 0) {
            println!("step {step}  loss {loss:.9}");
        }
    }
    gangs.shutdown(None)
}
