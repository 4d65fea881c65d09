//! Switches that take one protection out each.
//!
//! A test that cannot fail proves nothing. Built with the feature `planted` and run with
//! `MALOTE_PLANTED=<name>`, the protection of that name is gone, and its test must fail. Without the
//! feature every switch is a constant `false` and costs nothing.

/// Whether the protection of this name is taken out.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn is(_name: &str) -> bool {
    false
}

/// Whether the protection of this name is taken out.
#[cfg(feature = "planted")]
pub fn is(name: &str) -> bool {
    static PLANTED: std::sync::OnceLock<Vec<String>> = std::sync::OnceLock::new();
    PLANTED
        .get_or_init(|| std::env::var("MALOTE_PLANTED").unwrap_or_default().split(',').map(str::to_owned).collect())
        .iter()
        .any(|planted| planted == name)
}
