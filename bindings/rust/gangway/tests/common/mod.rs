#![allow(dead_code)] // each test program uses its part
use gangway::{AsView, Element, Gang, GangOptions, Gangs, Mesh, Tensor, View};

/// Where the ranks compute; test.sh runs some programs on the software GPU, too.
pub fn device() -> String {
    std::env::var("GANGWAY_TEST_DEVICE").unwrap_or("cpu".into())
}

fn options() -> GangOptions {
    GangOptions { timeout_ms: 120_000, threads: 1, device: Some(device()), ..Default::default() }
}

/// One rank.
pub fn alone() -> Gangs {
    let gang = Gang::threads(1, &options()).unwrap().remove(0);
    Gangs::new(&gang, &Mesh::default()).unwrap()
}

/// The elements of a tensor of any device.
pub fn values<T: Element>(tensor: &Tensor) -> Vec<T> {
    tensor.to_host().unwrap().as_view().slice::<T>().unwrap().to_vec()
}

/// The elements of memory that a view borrows; None where it lies on a GPU, which the view must say.
pub fn lent<T: Element>(view: View<'_>) -> Option<Vec<T>> {
    if device() == "cpu" {
        return Some(view.slice::<T>().unwrap().to_vec());
    }
    let refused = view.slice::<T>().err().expect("a GPU's memory");
    assert!(refused.text.contains("lies on GPU"), "{refused}");
    None
}

/// Runs `program` as every rank of a gang of threads, and hands a panic on.
pub fn ranks<R: Send>(count: usize, program: impl Fn(Gang) -> R + Sync) -> Vec<R> {
    let gangs = Gang::threads(count, &options()).unwrap();
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
