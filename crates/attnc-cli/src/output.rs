//! Lines on stdout and stderr.
//!
//! `println!` panics where nobody reads any more, as in `attnc explain m.onnx | head`; these do not.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write as _};

/// A line of the result, on stdout.
macro_rules! say {
    ($($text:tt)*) => { $crate::output::result_line(format_args!($($text)*)) };
}

/// A line about what is being done, on stderr.
macro_rules! note {
    ($($text:tt)*) => { $crate::output::prose_line(format_args!($($text)*)) };
}

/// Ends the process where the line cannot be written: quietly if its reader has gone, else with code 2.
pub(crate) fn result_line(text: Arguments<'_>) {
    let written = writeln!(std::io::stdout().lock(), "{text}");
    match written {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            prose_line(format_args!("error: the result cannot be written: {error}"));
            std::process::exit(2);
        }
    }
}

/// Whether anybody reads it does not change what is done.
pub(crate) fn prose_line(text: Arguments<'_>) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
