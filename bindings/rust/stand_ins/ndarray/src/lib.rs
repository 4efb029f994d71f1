//! An empty crate in the place of ndarray, so that this workspace builds without a registry; no other project
//! sees it.
compile_error!("to build this workspace with the feature ndarray, delete [patch.crates-io] from bindings/rust/Cargo.toml");
