//! A library of another release or level than the crate's. Each case is this program, started again.
use gangway::*;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Linked: these come before the library's own. Opened: a table of its own, with these in it.
const OTHER: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
static int32_t part(const char *name, int index) {
  const char *text = getenv(name);
  for (; index > 0; --index) text = strchr(text, '.') + 1;
  return atoi(text);
}
void gw_version(int32_t *major, int32_t *minor, int32_t *patch) {
  *major = part("OTHER_RELEASE", 0), *minor = part("OTHER_RELEASE", 1), *patch = part("OTHER_RELEASE", 2);
}
void gw_abi_version(int32_t *major, int32_t *minor) {
  *major = part("OTHER_LEVEL", 0), *minor = part("OTHER_LEVEL", 1);
}
static union { char bytes[1 << 16]; void *entries[1 << 13]; int32_t numbers[1 << 14]; size_t size; } table;
const void *gw_get_api(int32_t level) {
  void *library = dlopen(getenv("REAL_LIBRARY"), RTLD_NOW);
  const char *(*get_api)(int32_t) = (const char *(*)(int32_t))dlsym(library, "gw_get_api");
  memcpy(&table, get_api(level), *(const size_t *)get_api(level));
  gw_abi_version(&table.numbers[2], &table.numbers[3]);
  table.entries[atoi(getenv("PLACE_OF_VERSION"))] = (void *)gw_version;
  return &table;
}
"#;

fn other_library() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, library) = (folder.join("other.c"), folder.join("libother.so"));
    std::fs::write(&source, OTHER).unwrap();
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let done =
        Command::new(compiler).args(["-shared", "-fPIC", "-w", "-o"]).arg(&library).arg(&source).status();
    assert!(done.expect("a C compiler").success());
    library
}

/// What the first call says in a process that has such a library.
fn said(library: &Path, release: &str, level: &str) -> String {
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../capi/include/gangway/api.h");
    let text = std::fs::read_to_string(header).unwrap();
    let place =
        2 + text.lines().filter(|line| line.contains("(*")).take_while(|l| !l.contains("(*version)")).count();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "a_library_of_another_release_is_refused", "--nocapture"]);
    command
        .env("OTHER_RELEASE", release)
        .env("OTHER_LEVEL", level)
        .env("PLACE_OF_VERSION", place.to_string());
    command.env(if cfg!(feature = "dlopen") { "GANGWAY_LIBRARY" } else { "LD_PRELOAD" }, library);
    let output = command.env("REAL_LIBRARY", gangway_sys::LIBRARY).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn a_library_of_another_release_is_refused() {
    if std::env::var_os("OTHER_RELEASE").is_some() {
        #[cfg(feature = "dlopen")]
        if let Err(error) = load() {
            return println!("answer: {error}");
        }
        return println!(
            "answer: {:?}",
            Gang::new(&GangOptions { rank: 0, size: 1, ..Default::default() }).err()
        );
    }
    let library = other_library();
    let (release, level) = (gangway_sys::RELEASE, gangway_sys::ABI);
    let own = format!("{}.{}.{}", release.0, release.1, release.2);
    let own_level = format!("{}.{}", level.0, level.1);
    let later_patch = format!("{}.{}.{}", release.0, release.1, release.2 + 7);
    for fits in [&own, &later_patch] {
        let said = said(&library, fits, &own_level);
        assert!(said.contains("answer: None"), "{fits}: {said}");
    }
    let (next, level_of_next) = (format!("{}.4.2", release.0 + 1), format!("{}.0", level.0 + 1));
    let later = format!("{}.{}.0", release.0, release.1 + 1);
    let mut others = vec![(&next, &level_of_next)];
    if level.0 == 0 {
        others.push((&later, &own_level)); // level 0 is open
    }
    for (other, level) in others {
        let said = said(&library, other, level);
        let texts =
            [format!("libgangway {other} (ABI level {level})"), format!("{own} (ABI level {own_level})")];
        assert!(texts.iter().all(|text| said.contains(text)), "{other}: {said}");
    }
}
