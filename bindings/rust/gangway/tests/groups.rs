mod common;
use common::{alone, lent, meshes, values};
use gangway::*;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;

fn line(gangs: &Gangs) -> Module {
    let parameters = vec![
        ParameterOptions::new("w", &[5, 2]).fill(|rows, out: &mut [f32]| {
            assert_eq!(out.len(), 2 * rows.len());
            out.iter_mut().enumerate().for_each(|(i, x)| *x = (2 * rows.start + i) as f32);
            Ok(())
        }),
        ParameterOptions::new("b", &[1]).zeros(),
        ParameterOptions::new("fixed", &[2]).ones().frozen(),
    ];
    let group = ShardGroup::new(gangs, "line", parameters, &Default::default(), 1).unwrap();
    Module::from_groups(vec![group]).unwrap()
}

#[test]
fn a_parameter_has_its_aliases_and_a_buffer_no_gradient() {
    let parameters = vec![
        ParameterOptions::new("w", &[4]).ones().alias("head").alias("tail"),
        ParameterOptions::new("count", &[1]).dtype(DType::F64).zeros().buffer(),
    ];
    let group = ShardGroup::new(None, "g", parameters, &Default::default(), 1).unwrap();
    let model = Module::from_groups(vec![group]).unwrap();
    for name in ["g.w", "g.head", "g.tail"] {
        assert_eq!(values::<f32>(&model.parameter(name).unwrap().gather().unwrap()), [1.0; 4], "{name}");
    }
    let refused = model.parameter("g.count").unwrap().gather_gradient().err().unwrap();
    assert_eq!(refused.code, Code::InvalidState);
}

#[test]
fn full_values_are_there_while_unsharded() {
    for ranks in [1, 2, 4] {
        meshes(ranks, |gangs| {
            let mut model = line(&gangs);
            let mut group = model.group(0).unwrap();
            assert_eq!(group.count(), 3);
            group.prefetch().unwrap().wait().unwrap();
            let sum = group.unsharded(|full| {
                assert_eq!(full.value(2)?.slice::<f32>()?, [1.0, 1.0]);
                let refused = full.gradient(2).unwrap_err(); // frozen
                assert_eq!(refused.code, Code::InvalidState);
                Ok(full.value(0)?.slice::<f32>()?.iter().sum::<f32>())
            });
            assert_eq!(sum.unwrap(), 45.0);
            assert_eq!(group.view(0, Part::FullValue).unwrap_err().code, Code::InvalidState);
            let (mut w, mut b, mut fixed) = ([0f32; 10], [9f32], [0f32; 2]);
            let mut views = [
                ViewMut::new(&mut w, &[5, 2]).unwrap(),
                ViewMut::new(&mut b, &[1]).unwrap(),
                ViewMut::new(&mut fixed, &[2]).unwrap(),
            ];
            assert!(group.unshard_into(&mut views[..1]).is_err());
            group.unshard_into(&mut views).unwrap();
            assert_eq!((w[9], b, fixed), (9.0, [0.0], [1.0, 1.0]));
            assert!(model.group(1).is_err());
        });
    }
}

#[test]
fn several_groups_are_unsharded_at_once() {
    meshes(2, |gangs| {
        let make = |name: &str, values: &[f32], dims: &[usize]| {
            let parameter = ParameterOptions::new("w", dims).values(values);
            ShardGroup::new(&gangs, name, vec![parameter], &Default::default(), 1).unwrap()
        };
        let (a, b) = ([1f32, 2.0, 3.0, 4.0, 5.0, 6.0], [7f32, 8.0, 9.0]);
        let mut model = Module::from_groups(vec![make("a", &a, &[2, 3]), make("b", &b, &[3])]).unwrap();
        let mut groups = model.groups();
        let (first, second) = groups.split_at_mut(1);
        first[0]
            .unsharded(|one| {
                second[0].unsharded(|other| {
                    let (one_s, other_s) = (lent::<f32>(one.value(0)?), lent::<f32>(other.value(0)?));
                    assert!(one_s.map_or(true, |values| values == a));
                    assert!(other_s.map_or(true, |values| values == b));
                    other.add_gradient(0, &View::new(&[21f32; 3], &[3])?)?;
                    one.add_gradient(0, &View::new(&[1f32; 6], &[2, 3])?)
                })
            })
            .unwrap();
        groups.iter_mut().for_each(|group| group.reduce().unwrap());
        assert_eq!(model.num_parameters().unwrap(), 9);
        for (name, sum) in [("a.w", 2.0), ("b.w", 42.0)] {
            let gradient = model.parameter(name).unwrap().gather_gradient().unwrap();
            assert!(values::<f32>(&gradient).iter().all(|g| *g == sum), "{name}");
        }
    });
}

#[test]
fn first_values_that_do_not_fit_the_dims_are_refused_by_name() {
    let parameter = ParameterOptions::new("w", &[2, 3]).values(&[1f32; 5]);
    let error = ShardGroup::new(None, "g", vec![parameter], &Default::default(), 0).err().unwrap();
    assert!(error.text.contains("parameter w: values has 5 elements, dims [2, 3] need 6"), "{error}");
}

#[test]
fn memory_for_full_values_that_does_not_fit_is_refused_by_name() {
    let mut model = line(&alone());
    let mut group = model.group(0).unwrap();
    let (mut w, mut b, mut fixed) = ([0f32; 10], [0f32], [0f32; 2]);
    let mut views = [
        ViewMut::new(&mut w, &[2, 5]).unwrap(),
        ViewMut::new(&mut b, &[1]).unwrap(),
        ViewMut::new(&mut fixed, &[2]).unwrap(),
    ];
    let error = group.unshard_into(&mut views).unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument);
    let said = ["into[0]", "[2, 5]", "[5, 2]"];
    assert!(said.iter().all(|part| error.text.contains(part)), "{error}");
    let error = group.unsharded(|full| full.add_gradient(0, &View::new(&[1i32; 10], &[5, 2])?)).unwrap_err();
    assert!(error.text.contains("gradient is i32"), "{error}");
    let error = group.unshard_into(&mut views[1..]).unwrap_err();
    assert!(error.text.contains("values has 2 views, the group 3 parameters"), "{error}");
}

#[test]
fn an_export_outlives_group_and_model() {
    let gangs = alone();
    let mut model = line(&gangs);
    let managed = model.group(0).unwrap().unsharded(|full| full.export(0)).unwrap();
    drop(model);
    let tensor = unsafe { Tensor::from_dlpack(managed.as_ptr()) }.unwrap();
    assert_eq!(tensor.as_view().slice::<f32>().unwrap()[9], 9.0);
}

#[test]
fn an_own_update_sees_the_sum_of_all_gradients() {
    meshes(2, |gangs| {
        let rank = gangs.root().rank() as f32;
        let mut model = line(&gangs);
        let mut group = model.group(0).unwrap();
        group
            .unsharded(|full| {
                full.add_gradient(0, &View::new(&[rank + 1.0; 10], &[5, 2])?)?;
                full.gradient(1)?.slice_mut::<f32>()?[0] += 10.0;
                Ok(())
            })
            .unwrap();
        group.reduce().unwrap();
        group
            .update(|rows| {
                for parameter in 0..2 {
                    let gradient = rows.gradient(parameter)?;
                    let gradient = gradient.slice::<f32>()?;
                    let mut value = rows.value(parameter)?;
                    value.slice_mut::<f32>()?.iter_mut().zip(gradient).for_each(|(x, g)| *x -= g);
                }
                Ok(())
            })
            .unwrap();
        let (w, b) = (model.parameter("line.w").or_else(|_| model.parameter("w")), model.parameter_at(1));
        assert_eq!(values::<f32>(&w.unwrap().gather().unwrap())[..2], [-3.0, -2.0]);
        assert_eq!(values::<f32>(&b.unwrap().gather().unwrap()), [-20.0]);
    });
}

#[test]
fn a_group_reshards_after_an_error_and_after_a_panic() {
    let gangs = alone();
    let mut model = line(&gangs);
    let mut group = model.group(0).unwrap();
    let error = group.unsharded(|_| -> Result<()> { Err(Error::caller("stop")) }).unwrap_err();
    assert_eq!(error.text, "stop");
    assert!(group.view(0, Part::FullValue).is_err());
    let panicked = catch_unwind(AssertUnwindSafe(|| group.unsharded(|_| -> Result<()> { panic!("stop") })));
    assert!(panicked.is_err() && group.view(0, Part::FullValue).is_err());
    group.unsharded(|full| full.value(0).map(|_| ())).unwrap();
}

#[test]
fn an_update_ends_after_an_error_and_after_a_panic() {
    meshes(2, |gangs| {
        let rank = gangs.root().rank();
        let mut model = line(&gangs);
        let mut group = model.group(0).unwrap();
        let error = group.update(|_| -> Result<()> { Err(Error::caller("stop")) }).unwrap_err();
        assert_eq!(error.text, "stop");
        // The peer's update is whole.
        let write = |rows: &mut Update<'_>| -> Result<()> {
            assert!(rank == 1, "stop");
            rows.value(0)?.slice_mut::<f32>()?.fill(7.0);
            Ok(())
        };
        let done = catch_unwind(AssertUnwindSafe(|| group.update(write)));
        assert_eq!(done.is_err(), rank == 0);
        let last = group.unsharded(|full| Ok(full.value(0)?.slice::<f32>()?[9])).unwrap();
        assert_eq!(last, 7.0);
        group.update(|_| Ok(())).unwrap();
    });
}

#[test]
fn an_initialiser_s_error_comes_back_and_the_closure_is_dropped() {
    let held = Arc::new(());
    let kept = held.clone();
    let fill = move |_: std::ops::Range<usize>, _: &mut [f32]| {
        let _ = &kept;
        Err(Error::caller("no values today"))
    };
    let parameters = vec![ParameterOptions::new("w", &[4]).fill(fill)];
    let error = ShardGroup::new(None, "g", parameters, &Default::default(), 0).err().unwrap();
    assert_eq!(error.text, "no values today");
    assert_eq!(Arc::strong_count(&held), 1);
}

#[test]
fn groups_are_stepped_by_an_optimizer() {
    meshes(2, |gangs| {
        let mut model = line(&gangs);
        let mut opt = Sgd::new(&model, &SgdOptions { lr: 1.0, ..Default::default() }).unwrap();
        let mut group = model.group(0).unwrap();
        group.unsharded(|full| full.add_gradient(1, &View::new(&[3f32], &[1])?)).unwrap();
        group.reduce().unwrap();
        let options = StepOptions { scale: 0.5, ..Default::default() };
        opt.step(&mut model, &options).unwrap();
        let bias = model.parameter_at(1).unwrap().gather().unwrap();
        assert_eq!(values::<f32>(&bias), [-3.0]);
    });
}

/// A step of the mean of (r w)^2 / 2 over the rows r = 1 to 6; its gradient is `times` what it should be over
/// several ranks.
fn step(gangs: &Gangs, times: f64) -> Result<(f64, Module)> {
    let (index, count) = gangs.data_shard()?;
    let parameter = ParameterOptions::new("w", &[1]).dtype(DType::F64).ones();
    let group = ShardGroup::new(gangs, "g", vec![parameter], &Default::default(), 1)?;
    let mut model = Module::from_groups(vec![group])?;
    let sum: f64 = (index * 6 / count..(index + 1) * 6 / count).map(|r| ((r + 1) * (r + 1)) as f64).sum();
    let gradient = [sum / 6.0 * if count > 1 { times } else { 1.0 }];
    let mut group = model.group(0)?;
    group.unsharded(|full| full.add_gradient(0, &View::new(&gradient, &[1])?))?;
    group.reduce()?;
    Ok((gangs.dp().all_sum(sum / 2.0)? / 6.0, model))
}

#[test]
fn a_step_with_groups_over_a_mesh_is_that_of_one_rank() {
    for found in meshes(2, |gangs| verify_groups(&gangs, |over| step(over, 1.0), 1e-8).unwrap()) {
        assert_eq!((found.loss, found.mesh_loss, found.parameters), (91.0 / 12.0, 91.0 / 12.0, 1));
    }
    for error in meshes(2, |gangs| verify_groups(&gangs, |over| step(over, 2.0), 1e-8).unwrap_err()) {
        assert_eq!(error.code, Code::Mismatch);
        assert!(error.text.contains("the gradient of g.w differs by 1 of its norm"), "{error}");
    }
}
