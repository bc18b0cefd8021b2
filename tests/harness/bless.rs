//! Comparing with what is expected, and rewriting it where that is asked for.

use super::file::Case;
use libtest_mimic::Failed;
use similar::TextDiff;
use std::path::Path;

/// Whether expectations are rewritten.
pub(crate) fn is_blessing() -> bool {
    std::env::var_os("ATTNC_BLESS").is_some_and(|v| v == "1")
}

/// Holds the text behind `----` to `actual`.
pub(crate) fn expect(case: &Case, actual: &str) -> Result<(), Failed> {
    match &case.expected {
        Some(expected) if expected == actual => Ok(()),
        _ if is_blessing() => write(&case.path, &case.with_expected(actual)),
        Some(expected) => Err(difference(&case.name, expected, actual)),
        None => Err(format!(
            "nothing is expected yet; found\n\n{actual}\n{}",
            how(&case.name)
        )
        .into()),
    }
}

/// Holds the source itself to `actual`.
pub(crate) fn expect_source(case: &Case, actual: &str) -> Result<(), Failed> {
    if case.body == actual {
        return Ok(());
    }
    if is_blessing() {
        return write(&case.path, &format!("{}{actual}", case.header));
    }
    Err(difference(&case.name, &case.body, actual))
}

/// Holds a golden shader to `actual`: a plain file beside insta's metadata.
pub(crate) fn expect_golden(
    case: &Case,
    folder: &Path,
    kernel: &str,
    actual: &str,
) -> Result<(), Failed> {
    let stem = golden_stem(kernel);
    let file = folder.join(format!("{stem}.snap.wgsl"));
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    if expected == actual {
        return Ok(());
    }
    if !is_blessing() {
        let name = format!("{} {kernel}", case.name);
        return Err(difference(&name, &expected, actual));
    }
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(folder);
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| {
        insta::assert_binary_snapshot!(&format!("{stem}.wgsl"), actual.as_bytes().to_vec());
    });
    Ok(())
}

/// The name of a kernel's golden file up to `.snap`. Everything behind a first dot is an extension to insta.
pub(crate) fn golden_stem(kernel: &str) -> String {
    kernel.replace('.', "-")
}

fn write(path: &Path, text: &str) -> Result<(), Failed> {
    std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()).into())
}

fn how(name: &str) -> String {
    format!(
        "to accept it: cargo xtask bless {}",
        name.split(' ').next().unwrap_or(name)
    )
}

/// The two texts as a diff, and the command that accepts the second.
pub(crate) fn difference(name: &str, expected: &str, actual: &str) -> Failed {
    let diff = TextDiff::from_lines(expected, actual);
    let text = diff
        .unified_diff()
        .context_radius(3)
        .header("expected", "found")
        .to_string();
    format!("{text}\n{}", how(name)).into()
}
