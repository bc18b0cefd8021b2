//! `cargo xtask bless [FILTER]`: rewrite what the test cases expect.
//!
//! Two switches belong together: `ATTNC_BLESS` rewrites the part of a `.attn` case after `----` and
//! the transcripts of the command line, and `INSTA_UPDATE` rewrites the golden shaders. CI never
//! sets either; the diff is the review.

use anyhow::Result;

use crate::workspace;

pub(crate) fn run(filter: Option<&str>) -> Result<bool> {
    let packages = ["--package", "attnc-tests", "--package", "attnc-cli"];
    let mut command = workspace::cargo(&["test", "--no-fail-fast"]);
    command.args(packages);
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
