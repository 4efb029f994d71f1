mod common;
use common::ranks;
use gangway::{Along, Array, AsView, Code, Gang, Movement, MovementOptions, Partition, Tensor};

/// A number that no other rank and place has.
fn number(rank: usize, i: usize) -> f64 {
    ((rank + 3) * (i + 1) * 7919 % 2003) as f64 / 1000.0 - 1.0
}

fn filled(rank: usize, shape: &[usize]) -> Array<f64> {
    Array::new((0..shape.iter().product()).map(|i| number(rank, i)).collect(), shape).unwrap()
}

fn values(tensor: &Tensor) -> Vec<f64> {
    common::values(tensor)
}

/// `<F x, y> = <x, F* y>`, summed over all ranks; F x.
fn adjoint(gang: &Gang, movement: &mut Movement, x: &Array<f64>) -> Tensor {
    let out = movement.forward(x).unwrap();
    let shape: Vec<usize> = out.as_view().shape().iter().map(|n| *n as usize).collect();
    let y = filled(gang.rank() + 20, &shape);
    let back = movement.backward(&y).unwrap();
    let inner = |a: &[f64], b: &[f64]| gang.all_sum(a.iter().zip(b).map(|(a, b)| a * b).sum()).unwrap();
    let (left, right) = (inner(&values(&out), &y), inner(x, &values(&back)));
    assert!((left - right).abs() < 1e-12 * (1.0 + left.abs()), "{left} {right}");
    out
}

#[test]
fn partitions_are_lists_of_workers_in_a_grid() {
    ranks(6, |gang| {
        let rank = gang.rank();
        let all = Partition::new(&gang).unwrap();
        let grid = all.cartesian(&[2, 3]).unwrap();
        assert_eq!((grid.size(), grid.shape(), grid.rank()), (6, vec![2, 3], Some(rank)));
        assert_eq!(grid.index(), Some(vec![rank / 3, rank % 3]));
        let before = (rank % 3 > 0).then(|| rank.wrapping_sub(1));
        assert_eq!(grid.neighbors(1).unwrap(), (before, (rank % 3 < 2).then(|| rank + 1)));
        let few = all.inclusive(&[4, 1]).unwrap();
        assert_eq!(few.rank(), [4, 1].iter().position(|r| *r == rank));
        assert_eq!((few.is_active(), few.index().is_some()), (few.rank().is_some(), few.rank().is_some()));
        assert_eq!(few.union(&all.inclusive(&[0]).unwrap()).unwrap().size(), 3);
        assert_eq!(grid.subtopology(&[1]).unwrap().rank(), Some(rank % 3));
        let error = all.cartesian(&[2, 2]).unwrap_err();
        assert_eq!(error.code, Code::InvalidArgument);
        assert!(error.text.contains("has 4 places, but the partition has 6 workers"), "{error}");
        assert!(all.inclusive(&[]).is_err() && all.subtopology(&[1 << 40]).is_err());
    });
}

#[test]
fn movements_along_a_dim() {
    ranks(6, |gang| {
        let rank = gang.rank();
        let (row, column) = (rank / 3, rank % 3);
        let grid = Partition::new(&gang).unwrap().cartesian(&[2, 3]).unwrap();
        let defaults = MovementOptions::default();
        let x = filled(rank, &[2, 2]);
        let mut gather = Movement::all_gather(&grid, Along::Axes(&[1]), &defaults).unwrap();
        let joined = adjoint(&gang, &mut gather, &x);
        assert_eq!(joined.as_view().shape(), [2, 6]);
        let wanted = (0..12).map(|i| number(3 * row + i % 6 / 2, i / 6 * 2 + i % 2));
        assert_eq!(values(&joined), wanted.collect::<Vec<_>>());
        let mut scatter = Movement::reduce_scatter(&grid, Along::AxesKeep(&[0]), &defaults).unwrap();
        let part = adjoint(&gang, &mut scatter, &filled(rank, &[1, 4]));
        assert_eq!(part.as_view().shape(), [1, if column == 0 { 2 } else { 1 }]);
        let mut sum = Movement::all_sum_reduce(&grid, Along::Axes(&[]), &defaults).unwrap();
        assert_eq!(values(&adjoint(&gang, &mut sum, &x)), x.to_vec());
        let halved = MovementOptions { backward_scale: 0.5, ..defaults };
        let mut sum = Movement::all_sum_reduce(&grid, Along::Axes(&[0, 1]), &halved).unwrap();
        let one = Array::new(vec![1.0f64], &[1]).unwrap();
        assert_eq!(values(&sum.forward(&one).unwrap()), [6.0]);
        assert_eq!(values(&sum.backward(&one).unwrap()), [3.0]);
        let mut other = sum.duplicate().unwrap(); // has a forward of its own
        let two = Array::new(vec![1.0f64, 1.0], &[2]).unwrap();
        assert_eq!(values(&other.forward(&two).unwrap()), [6.0, 6.0]);
        assert_eq!(values(&sum.backward(&one).unwrap()), [3.0]);
        assert_eq!(values(&other.backward(&two).unwrap()), [3.0, 3.0]);
        let error = Movement::all_gather(&grid, Along::Axes(&[0, 1]), &defaults).unwrap_err();
        assert!(error.text.contains("but the axes name 2 of its 2"), "{error}");
    });
}

#[test]
fn movements_between_partitions() {
    ranks(4, |gang| {
        let rank = gang.rank();
        let all = Partition::new(&gang).unwrap();
        let grid = all.cartesian(&[2, 2]).unwrap();
        let column = all.inclusive(&[0, 3]).unwrap().cartesian(&[2, 1]).unwrap();
        let flat = all.inclusive(&[0, 3]).unwrap().cartesian(&[1, 2]).unwrap();
        let defaults = MovementOptions::default();
        let own = Array::new(vec![rank as f64], &[1]).unwrap();
        let none = Array::new(Vec::<f64>::new(), &[0]).unwrap();
        let given = if column.is_active() { &own } else { &none };
        let from = if rank < 2 { 0.0 } else { 3.0 };
        let mut spread = Movement::broadcast(&column, &grid, &defaults).unwrap();
        assert_eq!(values(&adjoint(&gang, &mut spread, given)), [from]);
        let turned = MovementOptions { transpose_source: true, ..defaults };
        let mut spread = Movement::broadcast(&flat, &grid, &turned).unwrap();
        assert_eq!(values(&spread.forward(given).unwrap()), [from]);
        let mut sum = Movement::sum_reduce(&grid, &column, &defaults).unwrap();
        let total = values(&adjoint(&gang, &mut sum, &own));
        assert_eq!(
            total,
            if rank == 0 {
                vec![1.0]
            } else if rank == 3 {
                vec![5.0]
            } else {
                vec![]
            }
        );
        // Column r of [[0 1 2 3] [10 11 12 13]] becomes a quarter of it.
        let rows = all.cartesian(&[1, 4]).unwrap();
        let mut turn = Movement::repartition(&rows, &grid, &defaults).unwrap();
        let x = Array::new(vec![rank as f64, 10.0 + rank as f64], &[2, 1]).unwrap();
        let quarter = adjoint(&gang, &mut turn, &x);
        let first = (rank / 2 * 10 + rank % 2 * 2) as f64;
        assert_eq!(values(&quarter), [first, first + 1.0]);
        if !column.is_active() {
            let mut spread = Movement::broadcast(&column, &grid, &defaults);
            assert!(spread.as_mut().unwrap().forward(&own).is_err());
        } else {
            Movement::broadcast(&column, &grid, &defaults).unwrap();
        }
    });
}
