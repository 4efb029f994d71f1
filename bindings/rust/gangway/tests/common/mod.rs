#![allow(dead_code)] // each test program uses its part
use gangway::{Gang, GangOptions, Gangs, Mesh};

/// Runs `program` as every rank of a gang of threads, and hands a panic on.
pub fn ranks<R: Send>(count: usize, program: impl Fn(Gang) -> R + Sync) -> Vec<R> {
    let options = GangOptions { timeout_ms: 120_000, threads: 1, ..Default::default() };
    let gangs = Gang::threads(count, &options).unwrap();
    let program = &program;
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for gang in gangs {
            threads.push(scope.spawn(move || program(gang)));
        }
        let results = threads.into_iter().map(|thread| thread.join());
        results.map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

/// The same with a mesh: all ranks are dp_shard.
pub fn meshes<R: Send>(count: usize, program: impl Fn(Gangs) -> R + Sync) -> Vec<R> {
    ranks(count, |gang| program(Gangs::new(&gang, &Mesh::default()).unwrap()))
}
