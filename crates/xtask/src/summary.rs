//! Adds up the `test result:` lines that every test program of `cargo test` closes with.
//!
//! ```text
//! test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.31s
//! ```

use std::fmt;

/// Tests counted over several test programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    /// Ignored tests: those that need something this machine or this run lacks.
    pub(crate) skipped: u64,
}

impl Counts {
    /// Adds what one line of output says; lines of any other kind change nothing.
    pub(crate) fn add_line(&mut self, line: &str) {
        let Some(result) = line.strip_prefix("test result: ") else {
            return;
        };
        // "ok. 12 passed; 0 failed; …": the verdict ends at the first full stop.
        let Some((_, counts)) = result.split_once(". ") else {
            return;
        };
        for part in counts.split(';') {
            let mut words = part.split_whitespace();
            let (Some(number), Some(what)) = (words.next(), words.next()) else {
                continue;
            };
            let Ok(number) = number.parse::<u64>() else {
                continue;
            };
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.skipped += number,
                _ => {}
            }
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 {
            write!(out, ", {} skipped", self.skipped)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
running 3 tests
test graph::tests::verifies ... ok
test gpu::runs ... ignored, no adapter
test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s

running 2 tests
a test that prints test result: ok. 9 passed; 9 failed; 9 ignored
test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 7 filtered out; finished in 12.30s
   Doc-tests attnc
test result: ok. 4 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out
";

    #[test]
    fn result_lines_are_added_up() {
        let mut counts = Counts::default();
        for line in OUTPUT.lines() {
            counts.add_line(line);
        }
        let expected = Counts {
            passed: 7,
            failed: 1,
            skipped: 3,
        };
        assert_eq!(counts, expected);
        assert_eq!(counts.to_string(), "7 passed, 1 failed, 3 skipped");
    }

    #[test]
    fn nothing_skipped_is_not_mentioned() {
        assert_eq!(Counts::default().to_string(), "0 passed, 0 failed");
    }
}
