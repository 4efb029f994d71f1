mod common;
use common::{device, meshes, ranks};
use gangway::*;
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, Mutex};

#[test]
fn handles_are_dropped_in_every_order() {
    // Parts: gangs, model, optimizer, frame, tensor, work; each order of the first four, the rest in between.
    let orders = |n: usize| -> Vec<Vec<usize>> {
        let mut all = vec![vec![]];
        for i in 0..n {
            all = all
                .into_iter()
                .flat_map(|order: Vec<usize>| {
                    (0..=order.len()).map(move |at| {
                        let mut longer = order.clone();
                        longer.insert(at, i);
                        longer
                    })
                })
                .collect();
        }
        all
    };
    let all = orders(5);
    assert_eq!(all.len(), 120);
    for chunk in all.chunks(24) {
        let chunk = chunk.to_vec();
        ranks(2, move |gang| {
            for order in &chunk {
                let gangs = Gangs::new(&gang, &Mesh::default()).unwrap();
                let mut model = Linear::new(4, 4, true).unwrap();
                model.parallelize(&gangs, &Default::default()).unwrap();
                let opt = AdamW::new(&model, &Default::default()).unwrap();
                let frame = Frame::new(&model, &Default::default()).unwrap();
                let weight = model.parameter("weight").unwrap().gather().unwrap();
                let memory = (device() == "cpu").then(|| gangs.dp().alloc::<f32>(16).unwrap());
                let work = memory.map(|memory| gangs.dp().all_reduce(memory, Reduce::Sum).start().unwrap());
                let work = Mutex::new(work);
                let mut parts: HashMap<usize, Box<dyn FnOnce() + '_>> = HashMap::new();
                parts.insert(0, Box::new(move || drop(gangs)));
                parts.insert(1, Box::new(move || drop(model)));
                parts.insert(2, Box::new(move || drop(opt)));
                parts.insert(3, Box::new(move || drop((frame, weight))));
                parts.insert(4, Box::new(|| drop(work.lock().unwrap().take())));
                for part in order {
                    parts.remove(part).unwrap()();
                }
            }
            gang.barrier().run().unwrap();
        });
    }
}

/// Says how often it was dropped.
struct Counted(Arc<AtomicUsize>);
impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// One of everything that hangs together, each to be dropped by itself.
fn family(gangs: &Gangs, dropped: &Arc<AtomicUsize>) -> Vec<Box<dyn Send>> {
    let counted = || Counted(dropped.clone());
    let (held, kept) = (counted(), counted());
    let custom = Custom::new("held").shapes(|_| Ok(())).backward_input(|_| Ok(())).forward(move |_| {
        let _ = &held;
        Ok(())
    });
    let fill = move |_: std::ops::Range<usize>, out: &mut [f32]| {
        let _ = &kept;
        out.fill(1.0);
        Ok(())
    };
    let mut model = Linear::new(4, 4, true).unwrap();
    model.parallelize(gangs, &Default::default()).unwrap();
    let opt = AdamW::new(&model, &Default::default()).unwrap();
    let frame = Frame::new(&model, &Default::default()).unwrap();
    let weight = model.parameter("weight").unwrap().gather().unwrap();
    let parameters = vec![ParameterOptions::new("w", &[3]).fill(fill)];
    let group = ShardGroup::new(gangs, "g", parameters, &Default::default(), 1).unwrap();
    let work = gangs.dp().all_reduce(gangs.dp().alloc::<f32>(16).unwrap(), Reduce::Sum).start().unwrap();
    work.attach(counted()).unwrap();
    let memory = gangs.dp().alloc::<f64>(4).unwrap();
    let groups = Module::from_groups(vec![group]).unwrap();
    let list: [Box<dyn Send>; 10] = [
        Box::new(gangs.clone()),
        Box::new(model),
        Box::new(opt),
        Box::new(frame),
        Box::new((weight.clone(), weight)),
        Box::new(groups),
        Box::new(work),
        Box::new(memory),
        Box::new(custom.build().unwrap()),
        Box::new(Store::custom(Map(Arc::default())).unwrap()),
    ];
    list.into()
}

#[test]
fn drops_on_other_threads_disturb_no_collective_and_come_once() {
    const ROUNDS: usize = 60;
    let dropped = Arc::new(AtomicUsize::new(0));
    meshes(2, |gangs| {
        let (rank, (sender, receiver)) = (gangs.root().rank(), mpsc::channel::<Box<dyn Send>>());
        let receiver = Mutex::new(receiver);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                // What one thread holds the other does not wait for: both drop at once.
                let receiver = &receiver;
                scope.spawn(move || loop {
                    let part = receiver.lock().unwrap().recv();
                    match part {
                        Ok(part) => drop(part),
                        Err(_) => break,
                    }
                });
            }
            for round in 0..ROUNDS {
                let mut parts = family(&gangs, &dropped);
                while !parts.is_empty() {
                    // Another order in every round and on every rank.
                    let next = (7 * round + 3 * rank + 5 * parts.len()) % parts.len();
                    sender.send(parts.swap_remove(next)).unwrap();
                    let mut x = vec![rank as f32 + 1.0; 100];
                    gangs.dp().all_reduce(&mut x, Reduce::Sum).run().unwrap();
                    assert_eq!(x, [3.0; 100]);
                }
            }
            drop(sender);
        });
        gangs.dp().barrier().run().unwrap();
    });
    assert_eq!(dropped.load(Ordering::SeqCst), 2 * 3 * ROUNDS); // closure, initialiser, attachment
}

#[test]
fn memory_of_a_gang_is_a_slice_on_the_host_alone() {
    ranks(2, |gang| match gang.alloc::<f32>(16) {
        Ok(memory) => assert!(device() == "cpu" && *memory == [0f32; 16]),
        Err(error) => {
            assert!(device() != "cpu" && error.text.contains("where Rust cannot read it"), "{error}")
        }
    });
}

#[test]
fn handles_are_shared_by_clones_and_threads() {
    ranks(2, |gang| {
        let copy = gang.clone();
        drop(gang);
        std::thread::spawn(move || copy.barrier().run().unwrap()).join().unwrap();
    });
    let tensor = Tensor::copy(&View::new(&[1f32, 2.0], &[2]).unwrap()).unwrap();
    let copy = tensor.clone();
    drop(tensor);
    std::thread::spawn(move || assert_eq!(copy.as_view().slice::<f32>().unwrap(), [1.0, 2.0]))
        .join()
        .unwrap();
}

#[test]
fn a_tensor_goes_out_and_comes_back_by_dlpack() {
    let tensor = Tensor::copy(&View::new(&[1i64, 2, 3], &[3]).unwrap()).unwrap();
    let managed = tensor.to_dlpack().unwrap();
    drop(tensor);
    let back = unsafe { Tensor::from_dlpack(managed.as_ptr()) }.unwrap();
    assert_eq!(back.as_view().slice::<i64>().unwrap(), [1, 2, 3]);
}

#[test]
fn current_gangs_are_a_stack_of_the_thread() {
    meshes(2, |gangs| {
        assert!(Gangs::current(None).unwrap().is_none());
        let other = Gangs::fake("cpu").unwrap();
        let outer = gangs.push_current().unwrap();
        let inner = other.push_current().unwrap();
        assert_eq!(Gangs::current(None).unwrap().unwrap().root().size(), 1);
        drop(inner);
        assert_eq!(Gangs::current(Some("cpu")).unwrap().unwrap().root().size(), 2);
        drop(outer);
        assert_eq!(Gangs::current(Some("cpu")).unwrap().unwrap().root().size(), 1);
        Gangs::set_default("cpu", &gangs).unwrap();
        assert_eq!(Gangs::current(Some("cpu")).unwrap().unwrap().root().size(), 2);
        Gangs::set_default("cpu", None).unwrap();
    });
}

#[test]
fn a_mesh_knows_coordinates_and_shards() {
    ranks(4, |gang| {
        let gangs = Gangs::new(&gang, &Mesh::default().dp_replicate(2)).unwrap();
        assert_eq!(gangs.coordinate("dp_shard").unwrap(), (gang.rank() % 2, 2));
        assert_eq!(gangs.data_shard().unwrap(), (gang.rank(), 4));
        assert_eq!((gangs.sdp().size(), gangs.rdp().size(), gangs.tp().size()), (2, 2, 1));
        assert_eq!(gangs.get("dp_shard+cp").unwrap().size(), 2);
        assert_eq!((gangs.pp().size(), gangs.cp().size(), gangs.dp().size()), (1, 1, 4));
        assert_eq!(Gangs::parallel(&gang, 2, 1, 1).unwrap().tp().size(), 2);
        assert_eq!(gangs.fsdp(2).unwrap().sdp().size(), 2);
        let places = GangPlaces {
            root: gangs.root(),
            dp: gangs.dp(),
            rdp: gangs.rdp(),
            sdp: gangs.sdp(),
            tp: gangs.tp(),
            pp: gangs.pp(),
            cp: gangs.cp(),
        };
        assert_eq!(Gangs::of(&places).unwrap().data_shard().unwrap(), (gang.rank(), 4));
        assert_eq!(Mesh::preset("hsdp", 2).unwrap(), Mesh::default().dp_replicate(-1).dp_shard(2));
        assert!(Mesh::preset("zero", 1).unwrap_err().to_string().contains("single, ddp"));
        gangs.shutdown(None).unwrap();
        assert_eq!(gangs.dp().barrier().run().unwrap_err().code, Code::InvalidState);
    });
}

#[derive(Clone)]
struct Map(Arc<Mutex<HashMap<String, Vec<u8>>>>);
impl KeyValue for Map {
    fn put(&self, key: &str, value: &[u8]) -> Result<()> {
        self.0.lock().unwrap().insert(key.into(), value.into());
        Ok(())
    }
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        Ok(self.0.lock().unwrap().get(key).cloned())
    }
    fn remove(&self, key: &str) -> Result<()> {
        self.0.lock().unwrap().remove(key);
        Ok(())
    }
}

#[test]
fn ranks_meet_in_a_store_of_the_program_s_own() {
    let map = Map(Arc::new(Mutex::new(HashMap::new())));
    // One that the store makes: in another, all that may write could be more than this user.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("store{}", std::process::id()));
    let create = |rank, size, store: Store| {
        let options =
            GangOptions { rank, size, store: Some(store), timeout_ms: 120_000, ..Default::default() };
        Gang::new(&options)
    };
    assert_eq!(create(0, 1, Store::custom(map.clone()).unwrap()).unwrap().size(), 1);
    assert_eq!(create(0, 1, Store::file(&folder).unwrap()).unwrap().size(), 1);
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(!Gang::create_id().unwrap().is_empty());
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let store = Store::custom(map.clone()).unwrap();
            scope.spawn(move || {
                let gang = create(rank, 2, store).unwrap();
                assert_eq!((gang.rank(), gang.all_sum(1.0).unwrap()), (rank as usize, 2.0));
                gang.shutdown(None).unwrap();
            });
        }
    });
    assert_eq!(Arc::strong_count(&map.0), 1); // every store is dropped
}

/// Fails, once as an error and once as a panic.
struct Full(bool);
impl KeyValue for Full {
    fn put(&self, _: &str, _: &[u8]) -> Result<()> {
        assert!(!self.0, "the disk is full");
        Err(Error::new(Code::Io, "the disk is full"))
    }
    fn get(&self, _: &str) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }
    fn remove(&self, _: &str) -> Result<()> {
        Ok(())
    }
}

#[test]
fn a_failure_of_a_program_s_own_store_comes_back_whole() {
    for (panics, code) in [(false, Code::Io), (true, Code::Caller)] {
        let store = Some(Store::custom(Full(panics)).unwrap());
        let options = GangOptions { rank: 0, size: 2, store, timeout_ms: 120_000, ..Default::default() };
        let error = Gang::new(&options).unwrap_err();
        assert_eq!((error.code, error.text.as_str()), (code, "the disk is full"));
    }
}
