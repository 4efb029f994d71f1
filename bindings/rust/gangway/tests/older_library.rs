//! A library whose table is shorter than the one that this crate knows. A program of its own: a process opens one library.
#![cfg(feature = "dlopen")]
use gangway::*;
use std::path::Path;
use std::process::Command;

/// The functions of REAL_LIBRARY, but a table of TABLE_BYTES, and behind them nothing that may be called.
const OLDER: &str = r#"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
static size_t table[4096];
const void *gw_get_api(int level) {
  void *library = dlopen(getenv("REAL_LIBRARY"), RTLD_NOW);
  const void *(*get_api)(int) = (const void *(*)(int))dlsym(library, "gw_get_api");
  const size_t bytes = strtoul(getenv("TABLE_BYTES"), NULL, 10);
  memset(table, 0xff, sizeof table);
  memcpy(table, get_api(level), bytes);
  table[0] = bytes;
  return table;
}
"#;

fn build(folder: &Path) -> std::path::PathBuf {
    let (source, library) = (folder.join("older.c"), folder.join("libolder.so"));
    std::fs::write(&source, OLDER).unwrap();
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let done = Command::new(compiler).args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    assert!(done.expect("a C compiler").success());
    library
}

/// Bytes of a table that ends before this function.
fn bytes_before(function: &str) -> usize {
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../capi/include/gangway/api.h");
    let text = std::fs::read_to_string(header).unwrap();
    let functions =
        text.lines().filter(|line| line.contains("(*")).take_while(|line| !line.contains(function));
    16 + 8 * functions.count()
}

#[test]
fn a_shorter_table_works_for_what_it_has_and_says_what_it_has_not() {
    std::env::set_var("GANGWAY_LIBRARY", build(Path::new(env!("CARGO_TARGET_TMPDIR"))));
    std::env::set_var("REAL_LIBRARY", gangway_sys::LIBRARY);
    std::env::set_var("TABLE_BYTES", "8");
    let error = load().unwrap_err();
    assert_eq!(error.code, Code::NotFound);
    assert!(error.text.contains("table has 8 bytes") && error.text.contains("less than the 16"), "{error}");

    let bytes = bytes_before("*parameter_tensor)");
    std::env::set_var("TABLE_BYTES", bytes.to_string());
    load().unwrap();
    let gang = Gang::new(&GangOptions { rank: 0, size: 1, ..Default::default() }).unwrap();
    let mut x = [2f32];
    gang.all_reduce(&mut x, Reduce::Sum).run().unwrap();
    assert_eq!(x, [2.0]);
    let mut model = Linear::new(2, 2, false).unwrap();
    model.materialize(None, 1, DType::F32).unwrap();
    assert_eq!(model.parameter("none").unwrap_err().code, Code::NotFound);
    let weight = model.parameter("weight").unwrap();
    let error = weight.export(Part::Value).unwrap_err();
    assert_eq!(error.code, Code::NotSupported);
    let said = ["older than its bindings", "gw_parameter_tensor", &format!("{bytes} bytes")];
    assert!(said.iter().all(|part| error.text.contains(part)), "{error}");
    // The next failure is its own.
    assert_eq!(model.parameter("none").unwrap_err().code, Code::NotFound);
    assert_eq!(gang.all_reduce(&mut [1i32], Reduce::Mean).run().unwrap_err().code, Code::InvalidArgument);
}
