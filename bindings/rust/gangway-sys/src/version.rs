// Which libraries fit these bindings: of the same major level, and of no lower minor one. Level 0 is open, so there the
// release has to be the same, up to its last part.

use crate::level::{ABI, RELEASE};

/// Why a library of this release and this ABI level does not fit; None: it does.
pub fn refusal(release: (i32, i32, i32), abi: (i32, i32)) -> Option<String> {
    let fits =
        abi.0 == ABI.0 && abi.1 >= ABI.1 && (ABI.0 > 0 || (release.0, release.1) == (RELEASE.0, RELEASE.1));
    let text = |release: (i32, i32, i32), abi: (i32, i32)| {
        format!("{}.{}.{} (ABI level {}.{})", release.0, release.1, release.2, abi.0, abi.1)
    };
    (!fits).then(|| {
        format!(
            "libgangway {} does not fit the crate gangway-sys {}: install the library and the crate of one release",
            text(release, abi),
            text(RELEASE, ABI)
        )
    })
}
