//! Opening files: only what is one.
//!
//! A folder cannot be read, and opening a pipe waits for whoever writes to it, perhaps for ever; both are
//! refused before they are opened.

use std::fs::{File, FileType};
use std::io;
use std::path::Path;

/// Opens a file for reading.
///
/// # Errors
/// Where it cannot be opened, or is none: what it is then is said.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    check(path)?;
    File::open(path)
}

/// Whether `path` is a file, followed through links. One that is not there passes: opening it says so.
///
/// # Errors
/// Where it is something else, which is named.
pub(crate) fn check(path: &Path) -> io::Result<()> {
    match std::fs::metadata(path) {
        Ok(found) if !found.is_file() => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("it is {}, and a file is expected", kind(found.file_type())),
        )),
        _ => Ok(()),
    }
}

fn kind(found: FileType) -> &'static str {
    if found.is_dir() {
        return "a folder";
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt as _;
        if found.is_fifo() {
            return "a pipe";
        }
        if found.is_socket() {
            return "a socket";
        }
        if found.is_char_device() || found.is_block_device() {
            return "a device";
        }
    }
    "no regular file"
}
