mod common;
use common::ranks;
use gangway::{AsView, Bf16, Bool, Code, Complex, DType, Element, Gang, Gangs, Mesh, Reduce, F16};

/// Element i of rank r, as a small number.
fn number(rank: usize, i: usize) -> u8 {
    (10 * rank + i) as u8
}

fn moves<T: Element + PartialEq + std::fmt::Debug>(gang: &Gang, make: impl Fn(u8) -> T) {
    let (rank, size) = (gang.rank(), gang.size());
    let own: Vec<T> = (0..3).map(|i| make(number(rank, i))).collect();
    let all: Vec<T> = (0..size).flat_map(|r| (0..3).map(move |i| number(r, i))).map(&make).collect();
    let zero = make(0);

    let mut out = vec![zero; 3 * size];
    gang.all_gather(&own, &mut out).run().unwrap();
    assert_eq!(out, all, "{:?}", T::DTYPE);

    let mut place = vec![zero; 3 * size];
    place[3 * rank..3 * rank + 3].copy_from_slice(&own);
    gang.all_gather_in_place(&mut place).run().unwrap();
    assert_eq!(place, all);

    let mut lists = vec![vec![zero; 3]; size];
    gang.all_gather_list(&own, &mut lists).run().unwrap();
    assert_eq!(lists.concat(), all);

    let root = size - 1;
    let mut values = own.clone();
    gang.broadcast(&mut values, root).run().unwrap();
    assert_eq!(values, all[3 * root..]);

    let mut gathered = vec![zero; 3 * size];
    gang.gather(&own, if rank == root { Some(&mut gathered[..]) } else { None }, root).run().unwrap();
    assert!(rank != root || gathered == all);

    let mut part = vec![zero; 3];
    gang.scatter(if rank == root { Some(&all[..]) } else { None }, &mut part, root).run().unwrap();
    assert_eq!(part, own);

    let sent: Vec<T> = (0..size).map(|to| make(number(rank, to))).collect();
    let mut got = vec![zero; size];
    gang.all_to_all(&sent, &mut got).run().unwrap();
    assert_eq!(got, (0..size).map(|from| make(number(from, rank))).collect::<Vec<_>>());

    let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
    let mut from = vec![zero; 3];
    gang.exchange().send(&own, next).recv(&mut from, previous).run().unwrap();
    assert_eq!(from, all[3 * previous..3 * previous + 3]);
    assert_eq!(gang.probe(previous).unwrap(), None);
    gang.barrier().run().unwrap();
    let work = gang.send(own, next).start().unwrap();
    while gang.probe(previous).unwrap().map(|message| message.0) != Some(3) {}
    gang.recv(&mut from, previous).run().unwrap();
    work.wait().unwrap();
}

#[test]
fn every_element_type_moves() {
    ranks(3, |gang| {
        moves(&gang, |n| n as i8);
        moves(&gang, |n| n as i16);
        moves(&gang, |n| n as i32);
        moves(&gang, |n| n as i64);
        moves(&gang, |n| n);
        moves(&gang, |n| n as u16);
        moves(&gang, |n| n as u32);
        moves(&gang, |n| n as u64);
        moves(&gang, |n| n as f32);
        moves(&gang, |n| n as f64);
        moves(&gang, |n| F16(n as u16));
        moves(&gang, |n| Bf16::from(n as f32));
        moves(&gang, |n| Bool::from(n % 2 == 1));
        moves(&gang, |n| Complex { re: n as f32, im: -1.0 });
        moves(&gang, |n| Complex { re: n as f64, im: -1.0 });
    });
}

fn reduces<T: Element + PartialEq + std::fmt::Debug>(gang: &Gang, make: impl Fn(u64) -> T) {
    let (rank, size) = (gang.rank(), gang.size());
    let expected = |reduce| {
        let values = 1..=size as u64;
        match reduce {
            Reduce::Sum => values.sum(),
            Reduce::Product => values.product(),
            Reduce::Min => 1,
            _ => size as u64,
        }
    };
    for reduce in [Reduce::Sum, Reduce::Product, Reduce::Min, Reduce::Max] {
        let mine = vec![make(rank as u64 + 1); 4 * size];
        let wanted = vec![make(expected(reduce)); 4 * size];
        let mut values = mine.clone();
        gang.all_reduce(&mut values[..], reduce).run().unwrap();
        assert_eq!(values, wanted, "{reduce:?} of {:?}", T::DTYPE);
        let mut output = vec![make(0); 4 * size];
        gang.all_reduce_into(&mine, &mut output, reduce).run().unwrap();
        assert_eq!(output, wanted);
        let mut part = vec![make(0); 4];
        gang.reduce_scatter(&mine, &mut part, reduce).run().unwrap();
        assert_eq!(part, wanted[..4]);
        let mut at_root = vec![make(0); 4 * size];
        gang.reduce(&mine, if rank == 0 { Some(&mut at_root[..]) } else { None }, reduce, 0).run().unwrap();
        assert!(rank != 0 || at_root == wanted);
    }
}

#[test]
fn every_reducible_type_reduces() {
    ranks(3, |gang| {
        reduces(&gang, |n| n as f32);
        reduces(&gang, |n| n as f64);
        reduces(&gang, |n| n as i32);
        reduces(&gang, |n| n as i64);
        reduces(&gang, |n| n as u8);
        reduces(&gang, |n| Bf16::from(n as f32));
    });
}

#[test]
fn a_mean_divides_by_the_size_and_an_accumulation_adds() {
    ranks(4, |gang| {
        let mut values = [gang.rank() as f64];
        gang.all_reduce(&mut values, Reduce::Mean).run().unwrap();
        assert_eq!(values, [1.5]);
        let mut output = [100.0f32];
        gang.all_reduce_into(&[1.0], &mut output, Reduce::Sum).accumulate().run().unwrap();
        assert_eq!(output, [104.0]);
        let refused = gang.all_reduce(&mut [1i64], Reduce::Mean).run().unwrap_err();
        assert_eq!(refused.code, Code::InvalidArgument);
    });
}

#[test]
fn counts_may_differ_by_rank() {
    ranks(3, |gang| {
        let rank = gang.rank();
        let mut all = vec![0u32; 6];
        gang.all_gather(&vec![rank as u32; rank + 1], &mut all).counts(&[1, 2, 3]).run().unwrap();
        assert_eq!(all, [0, 1, 1, 2, 2, 2]);
        // rank r sends r + 1 elements to every rank
        let (sent, got) = (vec![rank + 1; 3], vec![1, 2, 3]);
        gang.all_to_all(&vec![rank as u32; 3 * (rank + 1)], &mut all)
            .counts(&sent)
            .recv_counts(&got)
            .run()
            .unwrap();
        assert_eq!(all, [0, 1, 1, 2, 2, 2]);
        let (counts, own) = ([1, 2, 3], vec![rank as u32; rank + 1]);
        let parts = [10u32, 20, 20, 30, 30, 30];
        let mut mine = vec![0u32; rank + 1];
        let mut reduced = vec![0i32; rank + 1];
        let signed: Vec<i32> = parts.iter().map(|part| *part as i32).collect();
        gang.reduce_scatter(&signed, &mut reduced, Reduce::Sum).counts(&counts).run().unwrap();
        assert_eq!(reduced, vec![30 * (rank as i32 + 1); rank + 1]);
        for root in 0..3 {
            let mut gathered = [9u32; 6];
            let output = if rank == root { Some(&mut gathered[..]) } else { None };
            gang.gather(&own, output, root).counts(&counts).run().unwrap();
            assert!(rank != root || gathered == [0, 1, 1, 2, 2, 2]);
            let input = if rank == root { Some(&parts[..]) } else { None };
            gang.scatter(input, &mut mine, root).counts(&counts).run().unwrap();
            assert_eq!(mine, vec![10 * (rank as u32 + 1); rank + 1]);
        }
        let said = |error: gangway::Error, text| assert!(error.text.contains(text), "{error}");
        let error = gang.gather(&[1u32; 5], None::<Vec<u32>>, 0).counts(&counts).run().unwrap_err();
        said(error, "gather: input has 5 elements");
        let error = gang.scatter(None::<Vec<u32>>, &mut [1u32; 5], 0).counts(&counts).run().unwrap_err();
        said(error, if rank == 0 { "input is None on the root" } else { "output has 5 elements" });
        let error =
            gang.reduce_scatter(&signed[..2], &mut reduced, Reduce::Sum).counts(&counts).run().unwrap_err();
        said(error, "reduce_scatter: input has 2 elements, 6 are needed");
        let error = gang.all_gather(&own, &mut all).counts(&counts[..2]).run().unwrap_err();
        said(error, "all_gather: counts has 2 elements, 3 are needed");
        let refused = gang.all_gather(&[1u32; 9], &mut all).counts(&[1, 2, 3]).run().unwrap_err();
        assert!(refused.text.contains("input has 9 elements"), "{refused}");
    });
}

#[test]
fn parts_of_different_lengths_are_gathered_in_place() {
    ranks(3, |gang| {
        let mut values = vec![gang.rank() as u32; 6]; // of the other parts nothing is read
        gang.all_gather_in_place(&mut values).counts(&[1, 2, 3]).run().unwrap();
        assert_eq!(values, [0, 1, 1, 2, 2, 2]);
        let work = gang.all_gather_in_place(vec![gang.rank() as u32; 6]).counts(&[3, 0, 3]).start().unwrap();
        assert_eq!(work.wait().unwrap(), [0, 0, 0, 2, 2, 2]);
    });
}

#[test]
fn every_reduction_accumulates() {
    ranks(2, |gang| {
        let (ones, mut part, mut whole) = ([1f64; 2], [10f64], [20f64; 2]);
        gang.reduce_scatter(&ones, &mut part, Reduce::Sum).accumulate().run().unwrap();
        gang.reduce(&ones, Some(&mut whole), Reduce::Sum, 0).accumulate().run().unwrap();
        assert_eq!((part, whole), ([12.0], if gang.rank() == 0 { [22.0; 2] } else { [20.0; 2] }));
    });
}

#[test]
fn bytes_flags_and_sums_travel() {
    ranks(3, |gang| {
        let rank = gang.rank();
        let bytes: &[u8] = if rank == 1 { b"from one" } else { b"" };
        assert_eq!(gang.broadcast_bytes(bytes, 1).unwrap(), b"from one");
        assert_eq!(gang.all_gather_bytes(&vec![7; rank]).unwrap(), [vec![], vec![7], vec![7, 7]]);
        assert!(gang.broadcast_flag(rank == 2, 2).unwrap());
        assert_eq!(gang.all_sum(rank as f64).unwrap(), 3.0);
        gang.barrier().run().unwrap();
        assert!(gang.traffic().unwrap().calls > 0);
        assert!(gang.flight_record().unwrap().contains("barrier"));
    });
}

#[test]
fn a_trace_lasts_as_long_as_its_guard() {
    let folder = std::env::temp_dir().join(format!("gangway-trace-{}", std::process::id()));
    ranks(2, |gang| {
        let trace = gang.trace(&folder).unwrap();
        assert_eq!(gang.trace(&folder).err().unwrap().code, Code::InvalidState);
        gang.barrier().run().unwrap();
        trace.end().unwrap();
        gang.barrier().run().unwrap();
        drop(gang.trace(&folder).unwrap());
        let text = std::fs::read_to_string(folder.join(format!("rank-{}.json", gang.rank()))).unwrap();
        let barriers = text.lines().filter(|l| l.contains("\"barrier\"") && l.contains("\"user\""));
        assert_eq!(barriers.count(), 1);
        assert!(text.ends_with("\n]\n"));
        gang.barrier().run().unwrap();
    });
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn send_and_recv_meet() {
    ranks(2, |gang| {
        let mut got = [0i32; 2];
        if gang.rank() == 0 {
            gang.send(&[5, 6], 1).run().unwrap();
        } else {
            gang.recv(&mut got, 0).run().unwrap();
            assert_eq!(got, [5, 6]);
        }
    });
}

#[test]
fn empty_slices_are_legal() {
    ranks(2, |gang| {
        gang.all_reduce(&mut [0f32; 0], Reduce::Sum).run().unwrap();
        gang.all_gather(&[0u8; 0], &mut [0u8; 0]).run().unwrap();
        gang.broadcast_bytes(&[], 0).unwrap();
    });
}

#[test]
fn gangs_are_made_of_gangs() {
    ranks(4, |gang| {
        let rank = gang.rank();
        let pair = gang.split(Some(rank as u32 % 2), -(rank as i32)).unwrap().unwrap();
        assert_eq!((pair.size(), pair.rank()), (2, 1 - rank / 2));
        let turned = gang.create_gang(&[3, 1]).unwrap();
        assert_eq!(turned.map(|gang| gang.rank()), [None, Some(1), None, Some(0)][rank]);
        assert!(gang.split(if rank == 0 { None } else { Some(0) }, 0).unwrap().is_none() == (rank == 0));
        let refused = gang.create_gang(&[0, 4]).unwrap_err();
        assert_eq!(refused.code, Code::InvalidArgument);
        let copy = gang.duplicate().unwrap();
        assert_eq!(copy.all_sum(1.0).unwrap(), 4.0);
    });
}

#[test]
fn survivors_shrink_a_broken_gang() {
    ranks(3, |gang| {
        if gang.rank() == 2 {
            return gang.abort("rank 2 gives up").unwrap();
        }
        let error = gang.barrier().run().unwrap_err();
        assert_eq!(error.code, Code::Aborted);
        assert!(error.text.contains("rank 2 gives up"), "{error}");
        assert_eq!(gang.shrink(&[0, 1]).unwrap().all_sum(1.0).unwrap(), 2.0);
    });
}

#[test]
fn memory_of_a_gang_outlives_its_gang() {
    ranks(2, |gang| {
        let mut memory = gang.alloc::<f32>(100).unwrap();
        assert!(memory.iter().all(|x| *x == 0.0));
        memory[3] = 2.0;
        gang.all_reduce(&mut memory, Reduce::Sum).run().unwrap();
        assert_eq!(memory[3], 4.0);
        let shared = gang.alloc_shared::<u64>(2).unwrap();
        unsafe { *shared.as_ptr().add(gang.rank()) = gang.rank() as u64 + 1 };
        gang.barrier().run().unwrap();
        assert_eq!(unsafe { shared.slice() }, [1, 2]);
        drop(gang);
        drop(shared);
        assert_eq!(memory[3], 4.0);
    });
}

#[test]
fn a_tensor_of_the_gangs_memory_outlives_its_gang() {
    ranks(2, |gang| {
        let tensor = gang.alloc_tensor(&[2, 3], DType::F64).unwrap();
        unsafe { tensor.order(std::ptr::null_mut()) }.unwrap();
        let error = unsafe { tensor.order(8 as *mut _) }.unwrap_err();
        assert!(error.text.contains("stream is not null"), "{error}");
        let error = gang.alloc_tensor(&[1; 9], DType::F64).unwrap_err();
        assert!(error.text.contains("ndim is 9"), "{error}");
        drop(gang);
        assert_eq!(tensor.as_view().shape(), [2, 3]);
    });
}

#[test]
fn a_mesh_of_fake_gangs_records_what_a_rank_calls() {
    let root = Gang::fake(5, 8, &Default::default()).unwrap();
    let gangs = Gangs::new(&root, &Mesh::default().tp(2).pp(2)).unwrap();
    let coordinates = ["pp", "dp_shard", "tp"].map(|axis| gangs.coordinate(axis).unwrap());
    assert_eq!(coordinates, [(1, 2), (0, 2), (1, 2)]);
    gangs.tp().all_reduce(&mut [1f32; 3][..], Reduce::Sum).run().unwrap();
    assert!(gangs.tp().flight_record().unwrap().contains("all_reduce"));
    assert!(!gangs.pp().flight_record().unwrap().contains("all_reduce"));
}

#[test]
fn a_fake_gang_acts_as_if_every_rank_held_the_same() {
    let gang = Gang::fake(1, 4, &Default::default()).unwrap();
    let mut values = [2f32];
    gang.all_reduce(&mut values, Reduce::Sum).run().unwrap();
    assert_eq!((gang.rank(), values), (1, [8.0]));
    assert_eq!(DType::F32.bytes(), 4);
}
