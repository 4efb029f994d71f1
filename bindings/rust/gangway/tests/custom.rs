mod common;
use common::{alone, meshes, values};
use gangway::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// y = w * x, element by element; the loss is the sum of y.
fn scale(fails: impl Fn(&Call<'_>) -> Result<()> + Send + 'static) -> Custom {
    Custom::new("scale")
        .outputs(2)
        .parameter(ParameterOptions::new("w", &[4]).ones())
        .shapes(|call| (0..2).try_for_each(|output| call.output(output, DType::F64, &[1])))
        .forward(move |call| {
            fails(call)?;
            let (x, w) = (call.inputs[0].slice::<f32>()?, call.parameters[0].slice::<f32>()?);
            let loss: f32 = x.chunks(4).flat_map(|row| row.iter().zip(w).map(|(x, w)| x * w)).sum();
            call.outputs[0].slice_mut::<f64>()?[0] = loss as f64;
            call.outputs[1].slice_mut::<f64>()?[0] = (x.len() / 4) as f64;
            call.set_state(x.to_vec())
        })
        .backward_input(|call| {
            let w = call.parameters[0].slice::<f32>()?;
            let seed = call.loss_scale() as f32;
            if let Some(grad) = &mut call.input_grads[0] {
                for row in grad.slice_mut::<f32>()?.chunks_mut(4) {
                    row.iter_mut().zip(w).for_each(|(grad, w)| *grad = seed * w);
                }
            }
            Ok(())
        })
        .backward_weight(|call| {
            let (x, seed) = (call.state::<Vec<f32>>()?, call.loss_scale() as f32);
            assert!(call.state::<String>().is_err());
            assert_eq!(call.results.len(), 2);
            let grad = call.parameter_grads[0].as_mut().expect("trained").slice_mut::<f32>()?;
            for row in x.chunks(4) {
                grad.iter_mut().zip(row).for_each(|(grad, x)| *grad += seed * x);
            }
            Ok(())
        })
}

/// One step over all ranks.
fn step(gangs: &Gangs, custom: Custom) -> Result<StepResult> {
    let mut model = custom.build()?;
    model.parallelize(gangs, &Default::default())?;
    let mut opt = Sgd::new(&model, &SgdOptions { lr: 1.0, ..Default::default() })?;
    let x = Array::new(vec![gangs.root().rank() as f32 + 1.0; 8], &[2, 4])?;
    let result = model.train_step_with(&mut opt, &Batch::new(&x, ()).weight(2), &Default::default())?;
    let (size, w) = (gangs.root().size(), model.parameter("w")?.gather()?);
    let mean = (size + 1) as f32 / 2.0; // of x over all rows
    assert!(values::<f32>(&w).iter().all(|w| (w - (1.0 - mean)).abs() < 1e-6));
    assert!((result.loss - 4.0 * mean as f64).abs() < 1e-6);
    Ok(result)
}

#[test]
fn closures_train_like_a_layer() {
    for ranks in [1, 2, 4] {
        meshes(ranks, |gangs| step(&gangs, scale(|_| Ok(()))).unwrap());
    }
}

#[test]
fn a_nan_as_loss_is_skipped_and_said_though_all_gradients_are_numbers() {
    meshes(2, |gangs| {
        let custom = scale(|_| Ok(())).forward(|call| {
            call.outputs[0].slice_mut::<f64>()?[0] = f64::NAN;
            call.outputs[1].slice_mut::<f64>()?[0] = 2.0;
            call.set_state(vec![1f32; 8])
        });
        let mut model = custom.build().unwrap();
        model.parallelize(&gangs, &Default::default()).unwrap();
        let mut opt = Sgd::new(&model, &SgdOptions { lr: 1.0, ..Default::default() }).unwrap();
        let x = Array::new(vec![1f32; 8], &[2, 4]).unwrap();
        let result =
            model.train_step_with(&mut opt, &Batch::new(&x, ()).weight(2), &Default::default()).unwrap();
        assert!(result.loss.is_nan() && result.skipped, "{result:?}");
        assert_eq!((result.skip_reason, opt.steps().unwrap()), (SkipReason::NonFinite, 0));
        let w = model.parameter("w").unwrap().gather().unwrap();
        assert_eq!(values::<f32>(&w), [1.0; 4]);
    });
}

#[test]
fn a_panic_comes_back_as_its_text_and_peers_are_told() {
    let errors = meshes(3, |gangs| {
        let fails = |call: &Call<'_>| match call.gangs()?.expect("in gangs").root().rank() {
            1 => panic!("no {} on rank 1", "luck"),
            _ => Ok(()),
        };
        step(&gangs, scale(fails)).unwrap_err()
    });
    assert_eq!((errors[1].code, errors[1].text.as_str()), (Code::Caller, "no luck on rank 1"));
    for rank in [0, 2] {
        assert!(matches!(errors[rank].code, Code::Aborted | Code::Caller), "{}", errors[rank]);
        let text = &errors[rank].text;
        assert!(text.contains("scale") && text.contains("no luck on rank 1"), "{text}");
    }
}

#[test]
fn an_error_of_a_closure_comes_back_whole() {
    let errors = meshes(2, |gangs| {
        step(&gangs, scale(|_| Err(Error::caller("the data are odd")))).unwrap_err();
        step(&alone(), scale(|_| Err(Error::new(Code::Io, "no file")))).unwrap_err()
    });
    assert_eq!((errors[0].code, errors[0].text.as_str()), (Code::Io, "no file"));
    let unknown = |_: &Call<'_>| Err(Error::new(Code::Unknown(99), "strange"));
    let error = step(&alone(), scale(unknown)).unwrap_err();
    assert_eq!((error.code, error.text.as_str()), (Code::Caller, "strange"));
    let error = step(&alone(), scale(|_| Err(Error::new(Code::Unknown(0), "odd")))).unwrap_err();
    assert_eq!(error.code, Code::Caller);
}

#[test]
fn the_error_that_a_closure_failed_by_is_the_source_on_its_rank() {
    use std::error::Error as _;
    let none: fn(&Call<'_>) -> Result<()> = |_| {
        std::fs::read("/nowhere/table")?;
        Ok(())
    };
    let error = step(&alone(), scale(none)).unwrap_err();
    let source = error.source().and_then(|source| source.downcast_ref::<std::io::Error>()).expect("kept");
    assert_eq!((error.code, source.kind()), (Code::Io, std::io::ErrorKind::NotFound));
    assert_eq!(error.text, source.to_string());

    let number: fn(&Call<'_>) -> Result<()> = |_| Ok("seven".parse::<i32>().map(drop)?);
    let error = step(&alone(), scale(number)).unwrap_err();
    assert!(error.code == Code::Caller && error.source().unwrap().is::<std::num::ParseIntError>(), "{error}");

    let boxed: fn(&Call<'_>) -> Result<()> = |_| {
        let failed: Box<dyn std::error::Error + Send + Sync> = "a text".into();
        Err(failed)?
    };
    let error = step(&alone(), scale(boxed)).unwrap_err();
    assert_eq!((error.text.as_str(), error.source().unwrap().to_string()), ("a text", "a text".into()));
    // An own error in a box stays what it was, and errors of the library have no source.
    let own: Box<dyn std::error::Error + Send + Sync> = Error::new(Code::Timeout, "late").into();
    assert_eq!(Error::from(own).code, Code::Timeout);
    assert!(Linear::new(-1, 1, false).err().unwrap().source().is_none());
}

#[test]
fn every_status_comes_through_the_library_as_itself() {
    for code in (1..=16).map(Code::from_number) {
        let failing = move |_: &Call<'_>| Err(Error::new(code, format!("my own {code}")));
        let error = step(&alone(), scale(failing)).unwrap_err();
        assert_eq!((error.code, error.text), (code, format!("my own {code}")));
    }
}

#[test]
fn a_panic_while_shapes_are_asked_is_an_error() {
    let error = step(&alone(), scale(|_| Ok(())).shapes(|_| panic!("shapeless"))).unwrap_err();
    assert_eq!((error.code, error.text.as_str()), (Code::Caller, "shapeless"));
}

#[test]
fn a_shape_that_no_output_has_is_refused_by_the_reason() {
    let refused = |index, shape: &'static [i64]| {
        let shapes = move |call: &mut Shapes<'_>| call.output(index, DType::F32, shape);
        let error = step(&alone(), scale(|_| Ok(())).shapes(shapes)).unwrap_err();
        assert_eq!(error.code, Code::InvalidArgument);
        error.text
    };
    assert_eq!(refused(0, &[1; 9]), "output 0 has 9 dims, 8 are the most");
    assert_eq!(refused(2, &[1]), "output is 2, the module has 2, from 0 on");
}

#[test]
fn a_precision_that_a_closure_refuses_is_refused_beforehand() {
    let options = ParallelOptions {
        shard: ShardOptions { param_dtype: DType::BF16, ..Default::default() },
        ..Default::default()
    };
    let mut model = scale(|_| Ok(())).accepts(|dtype| dtype == DType::F32).build().unwrap();
    let error = model.parallelize(&alone(), &options).unwrap_err();
    assert!(error.text.contains("bf16"), "{error}");
}

#[test]
fn a_panic_while_precisions_are_asked_is_the_error_and_of_that_call_alone() {
    let gangs = alone();
    let mut model = scale(|_| Ok(())).accepts(|_| panic!("no table for this type")).build().unwrap();
    let error = model.parallelize(&gangs, &Default::default()).unwrap_err();
    assert_eq!((error.code, error.text.as_str()), (Code::Caller, "no table for this type"));
    let mut model = scale(|_| Ok(())).accepts(|_| false).build().unwrap();
    let error = model.parallelize(&gangs, &Default::default()).unwrap_err();
    assert_eq!(error.code, Code::NotSupported, "{error}");
}

#[test]
fn a_module_without_its_closures_is_refused() {
    let error = Custom::new("empty").build().unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument);
}

#[test]
fn a_parameter_is_filled_in_the_master_s_type_and_no_other() {
    let with = |filled| {
        let mut model = scale(|_| Ok(())).parameter(filled).build()?;
        model.parallelize(&alone(), &Default::default())?;
        let weight = model.parameter("v")?;
        weight.gather()
    };
    let rows = |rows: std::ops::Range<usize>, out: &mut [f32]| {
        assert_eq!((rows, out.len()), (0..2, 6));
        (0..6).for_each(|i| out[i] = i as f32);
        Ok(())
    };
    let filled = with(ParameterOptions::new("v", &[2, 3]).fill(rows)).unwrap();
    assert_eq!(values::<f32>(&filled), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    let error = with(ParameterOptions::new("v", &[2]).fill(|_, _: &mut [f64]| Ok(()))).unwrap_err();
    assert_eq!(error.text, "parameter v: its master is f32, fill writes f64");
}

struct Counted(Arc<AtomicUsize>);
impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn closures_and_states_are_dropped_once() {
    let (closures, states) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let held = Counted(closures.clone());
    let kept = states.clone();
    let custom = scale(|_| Ok(())).forward(move |call| {
        let _ = &held;
        call.outputs[0].slice_mut::<f64>()?[0] = 0.0;
        call.outputs[1].slice_mut::<f64>()?[0] = 2.0;
        call.set_state(Counted(kept.clone()))?; // replaced by the next
        call.set_state(Counted(kept.clone()))
    });
    let mut model = custom.backward_weight(|call| call.state::<Counted>().map(|_| ())).build().unwrap();
    model.parallelize(&alone(), &Default::default()).unwrap();
    let mut opt = Sgd::new(&model, &Default::default()).unwrap();
    let x = Array::new(vec![1f32; 8], &[2, 4]).unwrap();
    let batch = Batch::new(&x, ()).weight(2);
    model.train_step_with(&mut opt, &batch, &Default::default()).unwrap();
    assert_eq!(states.load(Ordering::SeqCst), 2);
    model.eval_step_with(&batch, &Default::default()).unwrap();
    assert_eq!(states.load(Ordering::SeqCst), 4);
    drop(model);
    assert_eq!(closures.load(Ordering::SeqCst), 0); // the optimizer keeps the model
    drop(opt);
    assert_eq!(closures.load(Ordering::SeqCst), 1);

    let refused = Counted(closures.clone());
    let forward = move |_: &mut Call<'_>| {
        let _ = &refused;
        Ok(())
    };
    assert!(Custom::new("empty").forward(forward).build().is_err());
    assert_eq!(closures.load(Ordering::SeqCst), 2);
}

#[test]
fn a_closure_runs_its_child() {
    meshes(2, |gangs| {
        let parent = Custom::new("parent")
            .child("inner", Linear::new(3, 3, false).unwrap())
            .shapes(|call| {
                let input = call.inputs[0].clone();
                call.output(0, input.dtype, &input.shape)
            })
            .forward(|call| {
                let y = call.child_forward(0, &call.inputs[0])?;
                let y = y[0].slice::<f32>()?;
                call.outputs[0].slice_mut::<f32>()?.iter_mut().zip(y).for_each(|(out, y)| *out = 2.0 * y);
                Ok(())
            })
            .backward_input(|call| {
                let grad = call.output_grads[0].expect("a gradient");
                let twice: Vec<f32> = grad.slice::<f32>()?.iter().map(|g| 2.0 * g).collect();
                let shape: Vec<usize> = grad.shape().iter().map(|dim| *dim as usize).collect();
                let inner = call.child_backward(0, &[Some(View::new(&twice, &shape)?)])?;
                if let (Some(out), Some(inner)) = (&mut call.input_grads[0], inner[0]) {
                    out.slice_mut::<f32>()?.copy_from_slice(inner.slice::<f32>()?);
                }
                assert!(call.child_forward(7, &call.inputs[0]).is_err());
                Ok(())
            });
        let mut model = parent.build().unwrap();
        model.fully_shard("", &gangs, &Default::default()).unwrap();
        model.materialize(&gangs, 1, DType::NONE).unwrap();
        let w = [2f32, 0.0, 0.0, 0.0, 3.0, 0.0, 0.0, 0.0, 4.0];
        model.assign("inner.weight", &View::new(&w, &[3, 3]).unwrap()).unwrap();
        let x = Array::new(vec![1f32; 3], &[1, 3]).unwrap();
        let mut frame = Frame::new(&model, &Default::default()).unwrap();
        let y = model.forward(&x, Some(&mut frame)).unwrap();
        assert_eq!(values::<f32>(&y[0]), [4.0, 6.0, 8.0]);
        let dx = model.backward(&x, &mut frame).unwrap();
        assert_eq!(values::<f32>(dx[0].as_ref().unwrap()), [4.0, 6.0, 8.0]);
    });
}

/// Three steps of the `scale` module: its weights and their averages.
fn trained(gangs: &Gangs, make: impl Fn(&Module) -> Result<Optimizer>) -> Result<[Vec<f32>; 2]> {
    let mut model = scale(|_| Ok(())).build()?;
    model.parallelize(gangs, &Default::default())?;
    let mut opt = make(&model)?;
    opt.set_schedule(|step| 1.0 / step as f64)?;
    let x = Array::new(vec![gangs.root().rank() as f32 + 1.0; 8], &[2, 4])?;
    for _ in 0..3 {
        model.train_step_with(&mut opt, &Batch::new(&x, ()).weight(2), &Default::default())?;
    }
    assert!((opt.lr()? - 0.125).abs() < 1e-12);
    let weights = values::<f32>(&model.parameter("w")?.gather()?);
    opt.swap_ema(&mut model)?;
    let averages = values::<f32>(&model.parameter("w")?.gather()?);
    opt.swap_ema(&mut model)?;
    Ok([weights, averages])
}

#[test]
fn an_own_optimizer_steps_as_sgd_does() {
    meshes(2, |gangs| {
        let sgd = trained(&gangs, |model| {
            let options = SgdOptions { lr: 0.5, momentum: 0.5, ema_decay: 0.5, ..Default::default() };
            Sgd::new(model, &options)
        });
        let own = trained(&gangs, |model| {
            let states = vec!["velocity".to_owned()];
            let options = CustomOptimizerOptions { lr: 0.5, ema_decay: 0.5, states, ..Default::default() };
            CustomOptimizer::new(model, &options, |call| {
                assert_eq!(call.name, "w");
                let keep = if call.step == 1 { 0.0 } else { 0.5 };
                let gradient = call.gradient.slice_mut::<f32>()?.to_vec();
                let velocity = call.states[0].slice_mut::<f32>()?;
                let value = call.value.slice_mut::<f32>()?;
                for ((w, v), g) in value.iter_mut().zip(velocity).zip(gradient) {
                    *v = keep * *v + g;
                    *w -= call.lr as f32 * *v;
                }
                Ok(())
            })
        });
        let (sgd, own) = (sgd.unwrap(), own.unwrap());
        assert_ne!(own[0], own[1]);
        for (a, b) in sgd.iter().flatten().zip(own.iter().flatten()) {
            assert!((a - b).abs() < 1e-5, "{a} {b}");
        }
    });
}

#[test]
fn an_own_optimizers_error_ends_the_step() {
    let mut model = scale(|_| Ok(())).build().unwrap();
    model.parallelize(&alone(), &Default::default()).unwrap();
    let dropped = Arc::new(AtomicUsize::new(0));
    struct OnDrop(Arc<AtomicUsize>);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let held = OnDrop(dropped.clone());
    let mut opt = CustomOptimizer::new(&model, &Default::default(), move |_| {
        let _ = &held;
        Err(Error::new(Code::NotFound, "no way down"))
    })
    .unwrap();
    let x = Array::new(vec![1.0f32; 8], &[2, 4]).unwrap();
    let batch = Batch::new(&x, ()).weight(2);
    let error = model.train_step_with(&mut opt, &batch, &Default::default()).unwrap_err();
    assert_eq!((error.code, error.text.as_str()), (Code::NotFound, "no way down"));
    assert_eq!(dropped.load(Ordering::SeqCst), 0);
    drop(opt);
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
}
