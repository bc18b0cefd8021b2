//! A spinner on stderr for what takes long, and only where a person watches.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal as _;
use std::time::Duration;

/// Shows `message` and the time passed while `work` runs; nothing where stderr is not a terminal.
pub(crate) fn during<T>(message: &str, work: impl FnOnce() -> T) -> T {
    watching(message, |_| work())
}

/// As [`during`], for work that says what it is about.
pub(crate) fn watching<T>(message: &str, work: impl FnOnce(&mut dyn FnMut(&str)) -> T) -> T {
    if !std::io::stderr().is_terminal() {
        return work(&mut |_| {});
    }
    let bar = ProgressBar::new_spinner().with_message(message.to_owned());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(120));
    let result = work(&mut |message| bar.set_message(message.to_owned()));
    bar.finish_and_clear();
    result
}
