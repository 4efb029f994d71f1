mod common;
use common::{alone, meshes};
use gangway::*;
use std::path::PathBuf;

fn decoder() -> DecoderOptions {
    DecoderOptions { dim: 8, layers: 1, heads: 2, ffn: 16, vocab: 22, ..Default::default() }
}

fn small(gangs: &Gangs) -> (Module, Optimizer) {
    let mut model = Decoder::new(&decoder()).unwrap();
    model.parallelize(gangs, &ParallelOptions { seed: 1, ..Default::default() }).unwrap();
    let opt = AdamW::new(&model, &AdamWOptions { lr: 1e-2, ..Default::default() }).unwrap();
    (model, opt)
}

fn step(model: &mut Module, opt: &mut Optimizer, stop: bool) -> StepResult {
    let tokens = Array::new((0..12).map(|i| i * 3 % 22).collect::<Vec<i64>>(), &[2, 6]).unwrap();
    let options = StepOptions { max_grad_norm: 1.0, stop, ..Default::default() };
    model.train_step_with(opt, &Batch::new(&tokens, ()), &options).unwrap()
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("gangway-metrics-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn lines(path: &std::path::Path) -> usize {
    std::fs::read_to_string(path).unwrap().lines().count()
}

#[test]
fn every_nth_step_gives_a_row_on_every_rank_and_a_line_on_one() {
    let path = folder("rows");
    let json = path.join("m.jsonl");
    let options = MetricsOptions {
        every: 2,
        sequence: 6,
        peak_flops: 1e9,
        json_lines: Some(json.clone()),
        svg: Some(path.join("loss.svg")),
        ..Default::default()
    };
    meshes(2, |gangs| {
        let (mut model, mut opt) = small(&gangs);
        let mut metrics = Metrics::new(&model, &options).unwrap();
        let data = MetricsStep { samples: 2, data_seconds: 0.5, checkpoint_seconds: 0.25 };
        let first = step(&mut model, &mut opt, false);
        assert_eq!((first.tokens, first.stop), (24, false));
        assert!(metrics.log(&model, &first, &data).unwrap().is_none());
        metrics.log_evaluation(1.25, 2.0).unwrap();
        let second = step(&mut model, &mut opt, false);
        let row = metrics.log(&model, &second, &data).unwrap().unwrap();
        assert_eq!((row.step, row.tokens, row.samples, row.skipped), (2, 48, 4, 0));
        assert_eq!((row.loss, row.lr, row.validation_loss), (second.loss, 1e-2, 1.25));
        assert_eq!((row.data_seconds, row.checkpoint_seconds, row.evaluate_seconds), (1.0, 0.5, 2.0));
        assert!(row.mfu > 0.0 && row.memory > 0 && row.slowest_rank < 2);
        let third = step(&mut model, &mut opt, false);
        assert!(metrics.log(&model, &third, &MetricsStep::default()).unwrap().is_none());
        let last = metrics.flush(&model).unwrap().unwrap();
        assert!(last.step == 3 && last.validation_loss.is_nan());
        assert!(metrics.flush(&model).unwrap().is_none());
    });
    assert_eq!(lines(&json), 2);
    assert!(std::fs::read_to_string(path.join("loss.svg")).unwrap().contains("<svg"));
    std::fs::remove_dir_all(path).unwrap();
}

#[test]
fn a_place_continues_rows_and_files_and_refusals_name_what_is_wrong() {
    let path = folder("place");
    let csv = path.join("m.csv");
    let (mut model, mut opt) = small(&alone());
    let options = MetricsOptions { csv: Some(csv.clone()), ..Default::default() };
    let mut metrics = Metrics::new(&model, &options).unwrap();
    let result = step(&mut model, &mut opt, false);
    metrics.log(&model, &result, &MetricsStep::default()).unwrap().unwrap();
    let place = metrics.position().unwrap();
    metrics.log(&model, &result, &MetricsStep::default()).unwrap().unwrap();
    assert_eq!(lines(&csv), 3);
    metrics.restore(&place).unwrap();
    assert_eq!(lines(&csv), 2);
    assert_eq!(metrics.log(&model, &result, &MetricsStep::default()).unwrap().unwrap().step, 2);
    assert_eq!(metrics.restore("{}").unwrap_err().code, Code::Corrupt);
    let refused = Metrics::new(&model, &MetricsOptions { every: 0, ..Default::default() }).unwrap_err();
    assert!(refused.text.contains("every = 0 is below 1"), "{refused}");
    let (other, _) = small(&alone());
    let refused = metrics.flush(&other).unwrap_err();
    assert!(refused.text.contains("the metrics were made for another model"), "{refused}");
    std::fs::remove_dir_all(path).unwrap();
}

#[test]
fn one_rank_stops_all_after_a_step() {
    meshes(2, |gangs| {
        let (mut model, mut opt) = small(&gangs);
        assert!(!step(&mut model, &mut opt, false).stop);
        let result = step(&mut model, &mut opt, gangs.root().rank() == 1);
        assert!(result.stop && result.step == 2);
    });
}

#[test]
fn an_optimizer_has_a_name() {
    let (model, _) = small(&alone());
    let opt = Optimizer::by_name(&model, "adamw", &[("lr", "0.5"), ("moment_dtype", "bf16")]).unwrap();
    assert_eq!(opt.lr().unwrap(), 0.5);
    Optimizer::by_name(&model, "sgd", &[]).unwrap();
    let refused =
        |kind, options: &[(&str, &str)]| Optimizer::by_name(&model, kind, options).err().unwrap().text;
    assert!(refused("adam", &[]).contains("adamw8bit"));
    assert!(refused("adamw", &[("momentum", "0.9")]).contains("momentum"));
}

#[test]
fn a_plan_gives_the_rank_with_the_most_memory() {
    let options = PlanOptions { decoder: decoder(), sequence: 6, rows: 2, ..Default::default() };
    let (rank, alone) = plan_memory(&options).unwrap();
    assert!(rank == 0 && 0 < alone.master && alone.master < alone.optimizer);
    let parallel = ParallelOptions { recompute: Recompute::Full, ..Default::default() };
    let two = PlanOptions { ranks: 2, mesh: Mesh::default().dp_shard(2), parallel, ..options.clone() };
    assert!(plan_memory(&two).unwrap().1.master < alone.master);
    let refused = plan_memory(&PlanOptions { ranks: 0, ..options }).unwrap_err();
    assert!(refused.text.contains("ranks is 0, below 1"), "{refused}");
}
