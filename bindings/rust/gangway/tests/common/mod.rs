#![allow(dead_code)] // each test program uses its part
use gangway::{Gang, GangOptions, Gangs, Mesh};

/// Runs `program` as every rank of a gang of threads, and hands a panic on.
pub fn ranks<R: Send + 'static>(
    count: usize,
    program: impl Fn(Gang) -> R + Clone + Send + 'static,
) -> Vec<R> {
    let options = GangOptions { timeout_ms: 120_000, threads: 1, ..Default::default() };
    let threads: Vec<_> = Gang::threads(count, &options)
        .unwrap()
        .into_iter()
        .map(|gang| {
            let program = program.clone();
            std::thread::spawn(move || program(gang))
        })
        .collect();
    let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
    results
        .into_iter()
        .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        .collect()
}

/// The same with a mesh: all ranks are dp_shard.
pub fn meshes<R: Send + 'static>(
    count: usize,
    program: impl Fn(Gangs) -> R + Clone + Send + 'static,
) -> Vec<R> {
    ranks(count, move |gang| program(Gangs::new(&gang, &Mesh::default()).unwrap()))
}
