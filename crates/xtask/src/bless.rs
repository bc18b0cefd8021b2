//! `cargo xtask bless [FILTER]`: rewrite what the test cases expect.
//!
//! Two switches belong together: `ATTNC_BLESS` rewrites the part of a `.attn` case after `----`,
//! and `INSTA_UPDATE` rewrites the golden shaders. CI never sets either; the diff is the review.

use anyhow::Result;

use crate::workspace;

pub(crate) fn run(filter: Option<&str>) -> Result<bool> {
    let mut command = workspace::cargo(&["test", "--package", "attnc-tests", "--no-fail-fast"]);
    command
        .env("ATTNC_BLESS", "1")
        .env("INSTA_UPDATE", "always");
    if let Some(filter) = filter {
        command.args(["--", filter]);
    }
    let good = workspace::run(&mut command)?;
    println!(
        "{}; read `git diff tests` before committing it",
        if good {
            "blessed"
        } else {
            "some cases still fail"
        }
    );
    Ok(good)
}
