//! The optional crates half and ndarray.
#![cfg(any(feature = "half", feature = "ndarray"))]
use gangway::{AsView, DType, Gang, Reduce, Tensor};

#[cfg(feature = "half")]
#[test]
fn halves_of_the_crate_half_are_reduced() {
    let ranks = Gang::threads(2, &Default::default()).unwrap();
    let sum = |gang: Gang| {
        let mut half = [half::f16::from_f32(1.5), half::f16::from_f32(-2.0)];
        let mut brain = vec![half::bf16::from_f32(0.25)];
        gang.all_reduce(&mut half, Reduce::Sum).run().unwrap();
        gang.all_reduce(&mut brain, Reduce::Sum).run().unwrap();
        assert_eq!(half.map(half::f16::to_f32), [3.0, -4.0]);
        assert_eq!(brain[0].to_f32(), 0.5);
    };
    let threads: Vec<_> = ranks.into_iter().map(|gang| std::thread::spawn(move || sum(gang))).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let tensor = Tensor::copy(&gangway::View::new(&[half::bf16::ONE], &[1]).unwrap()).unwrap();
    assert_eq!(tensor.as_view().dtype(), DType::BF16);
    assert_eq!(tensor.as_view().slice::<half::bf16>().unwrap(), [half::bf16::ONE]);
    let error = tensor.as_view().slice::<half::f16>().unwrap_err();
    assert_eq!(error.text, "tensor has elements of bf16, not of f16");
}

#[cfg(feature = "ndarray")]
#[test]
fn arrays_of_the_crate_ndarray_are_views_and_views_are_arrays() {
    use ndarray::{arr2, s, Array1, Array2};
    let array = arr2(&[[1f32, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    for given in [array.view(), array.t(), array.slice(s![.., 1..]), array.slice(s![1..2, ..;2])] {
        let tensor = Tensor::copy(&given).unwrap();
        assert_eq!(tensor.as_view().ndarray::<f32>().unwrap(), given.into_dyn());
    }
    let empty = Array2::<f64>::zeros((0, 3));
    assert_eq!(Tensor::copy(&empty).unwrap().as_view().ndarray::<f64>().unwrap().shape(), [0, 3]);
    let wrong = Tensor::copy(&Array1::<i64>::zeros(1)).unwrap().as_view().ndarray::<f32>().unwrap_err();
    assert_eq!(wrong.text, "tensor has elements of i64, not of f32");
    let mut values = [0i64; 4];
    let mut view = gangway::ViewMut::new(&mut values, &[2, 2]).unwrap();
    view.ndarray_mut::<i64>().unwrap()[[1, 0]] = 7;
    assert_eq!(values, [0, 0, 7, 0]);
}

#[cfg(feature = "ndarray")]
#[test]
#[should_panic(expected = "an array that was reversed along a dim has no view")]
fn a_reversed_array_of_the_crate_ndarray_is_refused() {
    let array = ndarray::arr1(&[1u8, 2, 3]);
    let _ = array.slice(ndarray::s![..;-1]).as_view();
}

#[cfg(feature = "ndarray")]
#[test]
fn a_module_trains_on_arrays_of_the_crate_ndarray() {
    let gangs = gangway::Gangs::fake("cpu").unwrap();
    let mut model = gangway::Linear::new(3, 2, false).unwrap();
    model.parallelize(&gangs, &Default::default()).unwrap();
    let input = ndarray::Array2::<f32>::ones((5, 3));
    let output = model.forward(&input, None).unwrap();
    assert_eq!(output[0].as_view().ndarray::<f32>().unwrap().shape(), [5, 2]);
}
