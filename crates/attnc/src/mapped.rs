//! Files mapped into memory, so that weights reach the device without a copy in between.

use crate::files;
use crate::ir::SharedBytes;
use memmap2::Mmap;
use std::io;
use std::path::Path;
use std::sync::Arc;

struct Mapped(Option<Mmap>);

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}

/// Maps a file.
///
/// # Errors
/// Where it cannot be opened or mapped.
pub(crate) fn map(path: &Path) -> io::Result<SharedBytes> {
    let file = files::open(path)?;
    // An empty mapping is refused by some systems.
    let mapped = if file.metadata()?.len() == 0 {
        None
    } else {
        // SAFETY: the mapping is private and only read, and its bytes are only ever taken as bytes, of
        // which every pattern is valid. What remains is that another process shortens the file meanwhile;
        // then the system ends this process, as it does for every program that maps its model. Copying
        // instead would double the memory and the loading time of large models.
        Some(unsafe { Mmap::map(&file) }?)
    };
    Ok(SharedBytes::new(Arc::new(Mapped(mapped))))
}
