//! A program of its own: it counts the memory of the whole process, and starts itself again to do so.
use gangway::*;
use std::os::raw::{c_char, c_void};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Preloads what counts every malloc and free of the process: the library's and Rust's.
fn counted(test: &str) -> bool {
    if counter().is_some() {
        return true;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/bindings/count_malloc.c");
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libcount_malloc.so");
    let mut compiler = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compiler.args(["-O1", "-fno-builtin", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
    assert!(compiler.status().expect("a C compiler").success());
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", test, "--nocapture", "--test-threads", "1"]).env("LD_PRELOAD", &library);
    // A thread allocates for itself when it first runs, which on a busy machine is at any time. So gangs that
    // live have none; those that are made and dropped have, and wait for them.
    again.env("GANGWAY_NUM_THREADS", "1");
    assert!(again.status().unwrap().success());
    false
}

type Counter = unsafe extern "C" fn(*mut i64, *mut i64);

/// The function of what counts, where it is preloaded.
fn counter() -> Option<Counter> {
    unsafe { std::mem::transmute(dlsym(std::ptr::null_mut(), b"count_malloc\0".as_ptr().cast())) }
}

/// Blocks and bytes that malloc has handed out and not got back.
fn allocated() -> (i64, i64) {
    let (mut blocks, mut bytes) = (0, 0);
    unsafe { counter().expect("preloaded")(&mut blocks, &mut bytes) };
    (blocks, bytes)
}

/// A multiple of each number up to 10: a ring of a fixed length, whose blocks hold 7 of its entries, has as many blocks
/// after it as before.
const FIRST_ROUNDS: usize = 10_080;

/// As many with GANGWAY_TEST_ALL=1; fewer show what each leaves.
fn rounds() -> usize {
    match std::env::var("GANGWAY_TEST_ALL") {
        Ok(all) if !all.is_empty() => FIRST_ROUNDS,
        _ => FIRST_ROUNDS / 4,
    }
}

/// Blocks and bytes that are left by so many rounds.
fn left_by(rounds: usize, round: &dyn Fn()) -> (i64, i64) {
    let before = allocated();
    (0..rounds).for_each(|_| round());
    let now = allocated();
    (now.0 - before.0, now.1 - before.1)
}

#[link(name = "dl")]
extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

static STORES: AtomicUsize = AtomicUsize::new(0);
struct Nowhere;
impl Nowhere {
    fn new() -> Nowhere {
        STORES.fetch_add(1, Ordering::SeqCst);
        Nowhere
    }
}
impl Drop for Nowhere {
    fn drop(&mut self) {
        STORES.fetch_sub(1, Ordering::SeqCst);
    }
}
impl KeyValue for Nowhere {
    fn put(&self, _: &str, _: &[u8]) -> Result<()> {
        Ok(())
    }
    fn get(&self, _: &str) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }
    fn remove(&self, _: &str) -> Result<()> {
        Ok(())
    }
}

fn group() -> ShardGroup {
    let w = ParameterOptions::new("w", &[3]).fill(|_, out: &mut [f32]| {
        out.fill(1.0);
        Ok(())
    });
    ShardGroup::new(None, "g", vec![w], &Default::default(), 1).unwrap()
}

fn custom() -> Module {
    let held = Nowhere::new(); // what closures hold goes with them
    let custom = Custom::new("one").shapes(|_| Ok(())).backward_input(|_| Ok(()));
    let forward = move |_: &mut Call<'_>| {
        let _ = &held;
        Ok(())
    };
    custom.forward(forward).build().unwrap()
}

fn llama() -> Module {
    Decoder::new(&DecoderOptions { dim: 8, layers: 1, heads: 1, ..Default::default() }).unwrap()
}

/// What makes one of a kind and drops it again, by name.
type Kind<'a> = (&'static str, Box<dyn Fn() + 'a>);

fn kinds<'a>(gang: &'a Gang, ready: &'a Module) -> Vec<Kind<'a>> {
    let options = || GangOptions { rank: 0, size: 1, threads: 2, ..Default::default() };
    let root = Gangs::fake("cpu").unwrap();
    let work = || gang.all_reduce(vec![1f32; 64], Reduce::Sum).start().unwrap();
    let tensor = || Tensor::copy(&View::new(&[1f32; 64], &[8, 8]).unwrap()).unwrap();
    let weight = move || ready.parameter("weight").unwrap();
    vec![
        ("gang", Box::new(move || drop(Gang::new(&options()).unwrap()))),
        ("gang's clone and duplicate", Box::new(move || drop((gang.clone(), gang.duplicate().unwrap())))),
        ("fake gang", Box::new(|| drop(Gang::fake(0, 2, &Default::default()).unwrap()))),
        ("mesh", Box::new(move || drop((Gangs::fake("cpu").unwrap(), root.push_current().unwrap())))),
        ("store", Box::new(|| drop(Store::custom(Nowhere::new()).unwrap()))),
        ("memory", Box::new(move || drop(gang.alloc::<f64>(8).unwrap()))),
        ("shared memory", Box::new(move || drop(gang.alloc_shared::<f64>(8).unwrap()))),
        ("work that is waited for", Box::new(move || drop(work().wait().unwrap()))),
        ("work that is dropped", Box::new(move || drop(work()))),
        ("work with an object", Box::new(move || work().attach(vec![0u8; 64]).unwrap())),
        ("bytes", Box::new(move || drop(gang.broadcast_bytes(&[1; 100], 0).unwrap()))),
        ("tensor", Box::new(move || drop((tensor().clone(), tensor())))),
        (
            "DLPack",
            Box::new(move || drop(unsafe { Tensor::from_dlpack(tensor().to_dlpack().unwrap().as_ptr()) })),
        ),
        ("linear", Box::new(|| drop(Linear::new(4, 4, true).unwrap()))),
        ("llama", Box::new(|| drop(llama()))),
        ("custom", Box::new(|| drop(custom()))),
        ("sequential", Box::new(|| drop(Sequential::new(vec![custom(), Linear::new(4, 4, true).unwrap()])))),
        ("parameter", Box::new(move || drop((weight().info().unwrap(), weight().gather().unwrap())))),
        ("frame", Box::new(move || drop(Frame::new(ready, &Default::default()).unwrap()))),
        ("optimizer", Box::new(move || drop(AdamW::new(ready, &Default::default()).unwrap()))),
        ("group", Box::new(|| drop(Module::from_groups(vec![group()]).unwrap()))),
        (
            "error",
            Box::new(move || drop((ready.parameter("9.weight").unwrap_err(), gang.send(&[1f32], 9).run()))),
        ),
        ("hook", Box::new(|| set_interrupt(|| false).and_then(|_| clear_interrupt()).unwrap())),
    ]
}

#[test]
fn thousands_of_each_kind_that_are_made_and_dropped_leave_nothing() {
    if !counted("thousands_of_each_kind_that_are_made_and_dropped_leave_nothing") {
        return;
    }
    let mut ready = Linear::new(4, 4, false).unwrap();
    ready.materialize(None, 0, DType::F32).unwrap();
    let options = GangOptions { rank: 0, size: 1, ..Default::default() };
    let gang = Gang::new(&options).unwrap();
    for (kind, _) in kinds(&gang, &ready) {
        // Of its own: the flight record's texts hold the number of the call, which keeps its digits in the second half.
        let gang = Gang::new(&options).unwrap();
        let round = kinds(&gang, &ready).into_iter().find(|(name, _)| *name == kind).unwrap().1;
        (0..FIRST_ROUNDS).for_each(|_| round()); // rings and caches of a fixed size fill
        let rounds = rounds();
        let batches = [(); 3].map(|_| left_by(rounds, &*round));
        // A list keeps the room for the most that there ever was: less than a byte for each round.
        let clean = batches.iter().all(|(blocks, bytes)| *blocks == 0 && *bytes < rounds as i64);
        assert!(clean, "{batches:?} blocks and bytes left by three times {rounds} times {kind}");
        assert_eq!(STORES.load(Ordering::SeqCst), 0, "objects left by {kind}");
    }
}
