//! The example programs, started by gangrun over 4 ranks. Over 1 and 2 tests/bindings/examples/test.sh compares
//! what they print with C's, and with GANGWAY_TEST_ALL=1 they run here, too.
use std::path::{Path, PathBuf};
use std::process::Command;

fn gangrun() -> PathBuf {
    let path = std::env::var_os("GANGRUN").unwrap_or_else(|| "gangrun".into());
    PathBuf::from(path)
}

fn rank_counts() -> &'static [usize] {
    match std::env::var("GANGWAY_TEST_ALL") {
        Ok(all) if !all.is_empty() => &[1, 2, 4],
        _ => &[4],
    }
}

fn example(name: &str) -> PathBuf {
    let program = std::env::current_exe().unwrap(); // target/PROFILE/deps/examples-HASH
    program.parent().and_then(Path::parent).unwrap().join("examples").join(name)
}

fn run(name: &str, ranks: usize, arguments: &[&str]) -> String {
    let mut command = Command::new(gangrun());
    command.args(["-n", &ranks.to_string(), "--timeout", "600", "--"]).arg(example(name)).args(arguments);
    let output = command.output().unwrap_or_else(|error| panic!("{:?}: {error} (set GANGRUN)", gangrun()));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} over {ranks} ranks: {}\n{text}{errors}", output.status);
    text
}

#[test]
fn all_reduce_sums_over_the_ranks() {
    for &ranks in rank_counts() {
        let (text, sum) = (run("all_reduce", ranks, &[]), ranks * (ranks + 1) / 2);
        assert_eq!(text.matches(&format!("sum {sum}")).count(), ranks, "{text}");
    }
}

#[test]
fn train_llama_learns_the_same_on_any_number_of_ranks() {
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("train_llama");
    std::fs::create_dir_all(&out).unwrap();
    let text = out.join("text.txt");
    std::fs::write(&text, "The quick brown fox jumps over the lazy dog. ".repeat(50)).unwrap();
    let losses = [1, 4].map(|ranks| {
        let model = out.join(format!("model{ranks}"));
        let shown = run("train_llama", ranks, &[text.to_str().unwrap(), model.to_str().unwrap(), "40"]);
        assert!(model.join("model.safetensors").exists() && shown.contains("sample: The "), "{shown}");
        let loss = |step| -> f64 {
            let line = shown.lines().find(|line| line.contains(step)).expect("the step is shown");
            line.split("loss ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap()
        };
        assert!(loss("step 40/") < 0.6 * loss("step 1/"), "{shown}");
        loss("step 40/")
    });
    assert!(losses.iter().all(|loss| (loss - losses[0]).abs() < 0.02), "{losses:?}");
}

#[test]
fn custom_module_learns() {
    for &ranks in rank_counts() {
        run("custom_module", ranks, &[]);
    }
}

#[test]
fn shard_group_learns() {
    for &ranks in rank_counts() {
        run("shard_group", ranks, &[]);
    }
}

#[test]
fn own_stages_of_a_pipeline_learn() {
    for &ranks in rank_counts() {
        let text = run("pipeline_custom_stage", ranks, &[]);
        assert!(text.contains("step 80"), "{text}");
    }
}

#[test]
fn train_3d_learns_over_tensor_pipeline_and_data_parallel_ranks() {
    let last = [4, 8].map(|ranks| {
        let text = run("train_3d", ranks, &[]);
        text.lines().last().expect("the last step is shown").to_owned()
    });
    assert_eq!(last[0], last[1]);
}
