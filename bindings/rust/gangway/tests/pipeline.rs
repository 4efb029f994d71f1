//! Pipelines of a program's own stages against the same stages on one rank.
mod common;
use common::{ranks, values};
use gangway::*;
use std::collections::{BTreeMap, HashMap};

const MICROBATCHES: usize = 4;
const WIDTH: usize = 3;

type Row = [f64; WIDTH];

fn weight(stage: usize) -> Row {
    std::array::from_fn(|i| ((stage * 31 + i * 17 + 5) % 13) as f64 / 8.0 - 0.7)
}

/// Microbatches of 2, 3, ... rows, and a number for each row that only the last stage reads.
fn data(m: usize) -> (Vec<f64>, Vec<i64>) {
    let rows = m + 2;
    let x = (0..rows * WIDTH).map(|i| ((i * 97 + m * 13) % 1021) as f64 / 500.0 - 1.0);
    (x.collect(), (0..rows).map(|r| (r % 5) as i64 - 2).collect())
}

/// y = w tanh(x) on each stage, in f64; the loss is half the sum of numbers * y^2.
#[derive(Default)]
struct Stages {
    gradients: BTreeMap<usize, Row>,
    kept: HashMap<(usize, usize), (Vec<f64>, Vec<f64>)>, // x, dy
    loss: f64,
}

impl Stages {
    fn forward(&mut self, stage: usize, m: usize, x: &[f64], numbers: Option<&[i64]>) -> Vec<f64> {
        let w = weight(stage);
        let y: Vec<f64> = x.iter().enumerate().map(|(i, x)| w[i % WIDTH] * x.tanh()).collect();
        let seed =
            numbers.map_or(vec![], |n| y.iter().enumerate().map(|(i, y)| n[i / WIDTH] as f64 * y).collect());
        self.loss += seed.iter().zip(&y).map(|(s, y)| 0.5 * s * y).sum::<f64>();
        self.kept.insert((stage, m), (x.to_vec(), seed));
        y
    }

    fn input_gradient(&mut self, stage: usize, m: usize, dy: Option<&[f64]>) -> Vec<f64> {
        let (w, (x, kept)) = (weight(stage), self.kept.get_mut(&(stage, m)).unwrap());
        if let Some(dy) = dy {
            *kept = dy.to_vec();
        }
        let slope = |(i, x): (usize, &f64)| w[i % WIDTH] * (1.0 - x.tanh() * x.tanh());
        x.iter().enumerate().map(slope).zip(kept).map(|(slope, dy)| slope * *dy).collect()
    }

    fn weight_gradient(&mut self, stage: usize, m: usize) {
        let (x, dy) = self.kept.remove(&(stage, m)).unwrap();
        let sums = self.gradients.entry(stage).or_default();
        x.iter().zip(dy).enumerate().for_each(|(i, (x, dy))| sums[i % WIDTH] += x.tanh() * dy);
    }

    fn compute(&mut self, action: &Action<'_>) -> Result<()> {
        let (stage, m) = (action.stage, action.microbatch.unwrap_or(0));
        let input = |i: usize| -> Result<Option<Tensor>> {
            let kept = if i < action.inputs.len() { action.keep(i)? } else { None };
            kept.map(|tensor| tensor.to_host()).transpose()
        };
        match action.kind {
            ActionKind::Forward => {
                let own = data(m);
                let (x, numbers) = (input(0)?, input(1)?);
                let (x, numbers) = match (&x, &numbers) {
                    (Some(x), Some(numbers)) => {
                        (x.as_view().slice::<f64>()?, numbers.as_view().slice::<i64>()?)
                    }
                    _ => (&own.0[..], &own.1[..]),
                };
                let y = self.forward(stage, m, x, action.last_stage.then_some(numbers));
                let rows = numbers.len();
                let (y, numbers) = (View::new(&y, &[rows, WIDTH])?, View::new(numbers, &[rows])?);
                return if action.last_stage { action.done(()) } else { action.done((&y, &numbers)) };
            }
            ActionKind::Backward | ActionKind::InputGradient => {
                assert!(action.last_stage || (action.inputs.len() == 2 && action.inputs[1].is_none()));
                let dy = input(0)?;
                let dy = dy.as_ref().map(|dy| dy.as_view().slice::<f64>()).transpose()?;
                let dx = self.input_gradient(stage, m, dy);
                if action.kind == ActionKind::Backward {
                    self.weight_gradient(stage, m);
                }
                if !action.first_stage {
                    let dx = View::new(&dx, &[dx.len() / WIDTH, WIDTH])?;
                    return action.done_some(&[Some(dx), None]); // numbers have no gradient
                }
            }
            ActionKind::WeightGradient => self.weight_gradient(stage, m),
            _ => {}
        }
        action.done(())
    }
}

/// All stages on one rank, microbatch after microbatch.
fn alone(count: usize) -> Stages {
    let mut all = Stages::default();
    for m in 0..MICROBATCHES {
        let (mut x, numbers) = data(m);
        for stage in 0..count {
            x = all.forward(stage, m, &x, (stage + 1 == count).then_some(&numbers[..]));
        }
        let mut dy: Option<Vec<f64>> = None;
        for stage in (0..count).rev() {
            dy = Some(all.input_gradient(stage, m, dy.as_deref()));
            all.weight_gradient(stage, m);
        }
    }
    all
}

fn options(schedule: &str) -> PipelineOptions {
    let (schedule, microbatches) = (Some(schedule.to_owned()), MICROBATCHES as i32);
    PipelineOptions { schedule, microbatches, ..Default::default() }
}

#[test]
fn a_pass_equals_one_rank() {
    let all = [
        ("1f1b", 2, 1),
        ("1f1b", 4, 1),
        ("interleaved-1f1b", 2, 2),
        ("zb-h1", 4, 1),
        ("zbv", 2, 2),
        ("zbv", 4, 2),
    ];
    for (schedule, count, per_rank) in all {
        let whole = alone(count * per_rank);
        ranks(count, |gang| {
            let mut pipe = Pipeline::new(&gang, &options(schedule)).unwrap();
            assert_eq!((pipe.stages(), pipe.microbatches()), (count * per_rank, MICROBATCHES));
            assert_eq!(pipe.local_stages().len(), per_rank);
            let mut own = Stages::default();
            while let Some(action) = pipe.next().unwrap() {
                assert!(action.training);
                own.compute(&action).unwrap();
            }
            assert!((gang.all_sum(own.loss).unwrap() - whole.loss).abs() < 1e-10 * whole.loss.abs());
            assert_eq!(own.gradients.keys().copied().collect::<Vec<_>>(), pipe.local_stages());
            for (stage, gradient) in &own.gradients {
                assert_eq!(gradient, &whole.gradients[stage], "{schedule}, stage {stage}");
                // equal bits
            }
            pipe.set_training(false).unwrap();
            let mut forwards = 0;
            while let Some(action) = pipe.next().unwrap() {
                assert!(action.kind == ActionKind::Forward && !action.training);
                own.compute(&action).unwrap();
                forwards += 1;
            }
            assert_eq!(forwards, MICROBATCHES * per_rank);
        });
    }
}

#[test]
fn actions_and_pipelines_print_what_they_are() {
    ranks(2, |gang| {
        let mut pipe =
            Pipeline::new(&gang, &PipelineOptions { shard_actions: 1, ..options("1f1b") }).unwrap();
        let text = format!("{pipe:?}");
        assert!(
            text.contains("stages: 2") && text.contains(&format!("local_stages: [{}]", gang.rank())),
            "{text}"
        );
        assert_eq!(
            (pipe.stage_rank(1).unwrap(), pipe.stage_rank(2).unwrap_err().code),
            (1, Code::InvalidArgument)
        );
        let (mut own, mut texts) = (Stages::default(), vec![]);
        while let Some(action) = pipe.next().unwrap() {
            texts.push(format!("{action:?}"));
            own.compute(&action).unwrap();
        }
        let forward = [
            "Forward: stage 0, microbatch 0",
            "Forward: stage 1, microbatch 0, inputs [Some(f64 [2, 3]), Some(i64 [2])]",
        ];
        for wanted in [
            forward[gang.rank()],
            &format!("Unshard: stage {}", gang.rank()),
            &format!("ReduceGrad: stage {}", gang.rank()),
        ] {
            assert!(texts.iter().any(|text| text == wanted), "{wanted}: {texts:?}");
        }
        assert!(
            gang.rank() == 1 || texts.iter().any(|text| text.ends_with("inputs [Some(f64 [2, 3]), None]")),
            "{texts:?}"
        );
    });
}

#[test]
fn inputs_may_be_kept() {
    ranks(2, |gang| {
        let mut pipe = Pipeline::new(&gang, &options("1f1b")).unwrap();
        let mut kept = vec![];
        for pass in 0..3 {
            while let Some(action) = pipe.next().unwrap() {
                let value = [(pass * MICROBATCHES + action.microbatch.unwrap()) as f32; 50];
                let forward = action.kind == ActionKind::Forward;
                if forward && !action.first_stage {
                    kept.push(action.keep(0).unwrap().unwrap());
                    assert_eq!(action.keep(1).unwrap_err().code, Code::InvalidArgument);
                }
                let sends = if forward { !action.last_stage } else { !action.first_stage };
                let view = View::new(&value, &[50]).unwrap();
                if sends { action.done(&view) } else { action.done(()) }.unwrap();
            }
        }
        drop(pipe);
        assert_eq!(kept.len(), gang.rank() * 3 * MICROBATCHES);
        for (i, tensor) in kept.iter().enumerate() {
            assert_eq!(values::<f32>(tensor), [i as f32; 50]);
        }
    });
}

fn refused<T: std::fmt::Debug>(result: Result<T>, code: Code, part: &str) {
    let error = result.unwrap_err();
    assert!(error.code == code && error.text.contains(part), "{part}: {error}");
}

#[test]
fn refusals_are_errors() {
    ranks(2, |gang| {
        let none = PipelineOptions::default();
        refused(Pipeline::new(&gang, &none), Code::InvalidArgument, "microbatches is 0");
        refused(Pipeline::new(&gang, &options("fast")), Code::InvalidArgument, "\"fast\" is unknown");
        let wrong = PipelineOptions { schedule_csv: Some("0F0,0B0\n1B0,1F0\n".into()), ..none.clone() };
        refused(Pipeline::new(&gang, &wrong), Code::InvalidArgument, "1B0");
        let other = PipelineOptions { microbatches: 1 + gang.rank() as i32, ..none };
        refused(Pipeline::new(&gang, &other), Code::Mismatch, "");
        let mut pipe = Pipeline::new(&gang, &PipelineOptions { microbatches: 1, ..options("1f1b") }).unwrap();
        let values = [1f32; 6];
        let (y, turned) = (View::new(&values, &[2, 3]).unwrap(), View::new(&values, &[3, 2]).unwrap());
        while let Some(action) = pipe.next().unwrap() {
            let forward = action.kind == ActionKind::Forward;
            if forward && !action.last_stage {
                refused(action.done(()), Code::InvalidArgument, "at least one output");
                refused(action.done_some(&[Some(y), None]), Code::InvalidArgument, "output 1 is absent");
                action.done(&y).unwrap();
                refused(action.done(&y), Code::InvalidState, "next comes before done");
            } else if !forward && !action.first_stage {
                refused(action.done(&turned), Code::InvalidArgument, "input 0");
                refused(action.done_some(&[None]), Code::InvalidArgument, "is absent");
                action.done(&y).unwrap(); // it was still to be done
            } else {
                action.done(()).unwrap();
            }
        }
    });
    ranks(1, |gang| {
        let mut pipe = Pipeline::new(&gang, &options("1f1b")).unwrap();
        assert!(pipe.next().unwrap().is_some()); // and nothing is done
        refused(pipe.set_training(false), Code::InvalidState, "under way");
        refused(pipe.next().map(|_| ()), Code::InvalidState, "done comes before next");
    });
}

#[test]
fn a_rank_that_leaves_ends_the_pass_on_all_ranks() {
    ranks(3, |gang| {
        let mut pipe = Pipeline::new(&gang, &options("1f1b")).unwrap();
        if gang.rank() == 0 {
            assert!(pipe.next().unwrap().is_some());
        } else {
            refused(pipe.next().map(|_| ()), Code::Aborted, "in the middle of a pass");
        }
        drop(pipe);
        gang.barrier().run().unwrap(); // the program's gang works on
    });
}
