//! Finds libgangway: GANGWAY_LIB_DIR (and GANGWAY_INCLUDE_DIR), else the pkg-config program. With `dlopen`
//! there is nothing to link.
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "src/level.rs"]
#[allow(dead_code)]
mod level;
#[path = "src/version.rs"]
mod version;

fn main() {
    for name in
        ["GANGWAY_LIB_DIR", "GANGWAY_INCLUDE_DIR", "PKG_CONFIG", "PKG_CONFIG_PATH", "BINDGEN", "DOCS_RS"]
    {
        println!("cargo:rerun-if-env-changed={name}");
    }
    println!("cargo:rerun-if-changed=src");
    println!("cargo:rerun-if-changed=generate.sh");
    // docs.rs has no library: documentation needs only the committed bindings.
    let documented = env::var_os("DOCS_RS").is_some();
    if !documented && env::var_os("CARGO_FEATURE_DLOPEN").is_none() {
        link();
    }
    if !documented && env::var_os("CARGO_FEATURE_BINDGEN").is_some() {
        generate();
    }
}

fn link() {
    println!("cargo:rustc-link-lib=dylib=gangway");
    let folder = match env::var_os("GANGWAY_LIB_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => match pkg_config("--variable=libdir") {
            Some(folder) => {
                fits();
                PathBuf::from(folder)
            }
            None => panic!(
                "libgangway was not found: set GANGWAY_LIB_DIR, or PKG_CONFIG_PATH to where gangway.pc is"
            ),
        },
    };
    println!("cargo:rustc-link-search=native={}", folder.display());
    println!("cargo:libdir={}", folder.display()); // DEP_GANGWAY_LIBDIR of crates that depend on this one
}

/// gangway.pc tells the release; the level is looked at when the library is used.
fn fits() {
    let release = pkg_config("--modversion").unwrap_or_default();
    let mut numbers = release.split('.').map(|number| number.parse().unwrap_or(-1));
    let mut next = || numbers.next().unwrap_or(-1);
    let release = (next(), next(), next());
    if let Some(text) = version::refusal(release, (release.0, level::ABI.1)) {
        panic!("{text}");
    }
}

fn generate() {
    let include = match env::var_os("GANGWAY_INCLUDE_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => pkg_config("--variable=includedir").map(PathBuf::from).unwrap_or_else(|| {
            Path::new(&env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("../../../capi/include")
        }),
    };
    let out = env::var_os("OUT_DIR").unwrap();
    let done =
        Command::new("sh").arg("generate.sh").arg(&include).arg(&out).status().expect("sh does not start");
    assert!(done.success(), "generate.sh failed on the headers in {}", include.display());
}

fn pkg_config(question: &str) -> Option<String> {
    let program = env::var_os("PKG_CONFIG").unwrap_or_else(|| "pkg-config".into());
    let output = Command::new(program).arg(question).arg("gangway").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
