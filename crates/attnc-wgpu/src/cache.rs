//! Pipelines that a driver compiled before, in a file of a folder that the host names.
//!
//! ```no_run
//! # fn f(gpu: attnc_wgpu::Gpu, plan: attnc_plan::Plan) -> Result<(), Box<dyn std::error::Error>> {
//! use attnc_wgpu::{Executable, ExecutableOptions, PipelineCache};
//! let cache = PipelineCache::open(&gpu.device, "cache/attnc".as_ref());
//! let options = ExecutableOptions {
//!     pipeline_cache: cache.as_ref().map(PipelineCache::handle),
//!     ..ExecutableOptions::default()
//! };
//! let exe = Executable::with_options(&gpu.device, &gpu.queue, &plan, &(), &options)?;
//! if let Some(cache) = cache {
//!     cache.save()?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Nothing is read or written unless a host opens a cache. A file is for one adapter, driver and version of
//! attnc; what is damaged or not for this device is as if it were not there. Drivers that keep a cache of their
//! own gain little (software Vulkan nothing: its cache holds no code).
//!
//! Entry: a folder that only its owner can write to. Exit: the folder holds whole files only: they are
//! written beside their place and renamed.

use sha2::{Digest as _, Sha256};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// What a file begins with, before the digest of all that follows.
const MAGIC: &[u8] = b"attnc pipelines 1\n";
/// No driver's cache of these kernels is near this; a larger file is not ours.
const LARGEST: u64 = 1 << 28;

/// Compiled pipelines, kept between processes.
#[derive(Debug)]
pub struct PipelineCache {
    cache: wgpu::PipelineCache,
    path: PathBuf,
    /// What the file held.
    loaded: Option<Vec<u8>>,
}

impl PipelineCache {
    /// The cache of a device in `folder`, which need not be there yet; `None` where the device has no pipeline
    /// caches, or was opened without them.
    #[must_use]
    pub fn open(device: &wgpu::Device, folder: &Path) -> Option<Self> {
        let key = key(&device.adapter_info())?;
        if !device.features().contains(wgpu::Features::PIPELINE_CACHE) {
            return None;
        }
        let path = folder.join(key);
        let loaded = read(&path);
        let descriptor = wgpu::PipelineCacheDescriptor {
            label: Some("attnc"),
            data: loaded.as_deref(),
            // Data that wgpu or the driver do not want give an empty cache.
            fallback: true,
        };
        // SAFETY: the data must have come from `PipelineCache::get_data` for an adapter of the same
        // `pipeline_cache_key`. `save` is what writes the file, from `get_data`; its digest, checked by
        // `read`, says that these are the bytes that were written; and its name holds `pipeline_cache_key`,
        // the driver's version, and attnc's, which pins wgpu's. wgpu compares its own header with the
        // adapter besides. What remains is someone who means harm and can write to the host's folder: the
        // documentation asks for one that only its owner can.
        let cache = unsafe { device.create_pipeline_cache(&descriptor) };
        Some(Self {
            cache,
            path,
            loaded,
        })
    }

    /// What pipelines are made with.
    #[must_use]
    pub fn handle(&self) -> &wgpu::PipelineCache {
        &self.cache
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes that were there when it was opened; 0 where there were none that can be used.
    #[must_use]
    pub fn loaded_bytes(&self) -> usize {
        self.loaded.as_ref().map_or(0, Vec::len)
    }

    /// Writes the file, if there is anything new.
    ///
    /// # Errors
    /// Where the folder cannot be made or written to; what was there before stays.
    pub fn save(&self) -> io::Result<()> {
        match self.cache.get_data() {
            Some(data) if self.loaded.as_ref() != Some(&data) => write(&self.path, &data),
            _ => Ok(()),
        }
    }
}

/// The file's name: adapter, driver and our version. `None` where wgpu has no caches for the API.
fn key(info: &wgpu::AdapterInfo) -> Option<String> {
    let adapter = wgpu::util::pipeline_cache_key(info)?;
    let driver = format!("{}\n{}\n{}", info.name, info.driver, info.driver_info);
    let driver = Sha256::digest(driver);
    let [a, b, c, d] = [driver[0], driver[1], driver[2], driver[3]];
    let version = env!("CARGO_PKG_VERSION");
    Some(format!(
        "{adapter}_{a:02x}{b:02x}{c:02x}{d:02x}_attnc_{version}.bin"
    ))
}

/// The data of a file that is as it was written.
fn read(path: &Path) -> Option<Vec<u8>> {
    if fs::metadata(path).ok()?.len() > LARGEST {
        return None;
    }
    let bytes = fs::read(path).ok()?;
    let rest = bytes.strip_prefix(MAGIC)?;
    let (digest, data) = rest.split_at_checked(32)?;
    (Sha256::digest(data).as_slice() == digest).then(|| data.to_vec())
}

fn write(path: &Path, data: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    // Another process may be doing the same: each has a file of its own until the last moment.
    let beside = path.with_extension(format!("{}.tmp", std::process::id()));
    let written = fs::File::create(&beside).and_then(|mut file| {
        file.write_all(MAGIC)?;
        file.write_all(&Sha256::digest(data))?;
        file.write_all(data)
    });
    let renamed = written.and_then(|()| fs::rename(&beside, path));
    if renamed.is_err() {
        // What could not be finished is of no use to anyone.
        let _ = fs::remove_file(&beside);
    }
    renamed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(test: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("attnc-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        folder
    }

    #[test]
    fn what_was_written_is_read_and_nothing_else() {
        let folder = folder("cache");
        let path = folder.join("a.bin");
        assert_eq!(read(&path), None);
        write(&path, b"data").unwrap();
        assert_eq!(read(&path).as_deref(), Some(&b"data"[..]));
        assert_eq!(
            fs::read_dir(&folder).unwrap().count(),
            1,
            "no file beside it"
        );
        let whole = fs::read(&path).unwrap();
        for wrong in [
            &whole[..whole.len() - 1],
            &whole[..20],
            b"",
            b"something else",
        ] {
            fs::write(&path, wrong).unwrap();
            assert_eq!(read(&path), None);
        }
        let mut flipped = whole.clone();
        *flipped.last_mut().unwrap() ^= 1;
        fs::write(&path, flipped).unwrap();
        assert_eq!(read(&path), None);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_folder_that_cannot_be_written_to_is_an_error() {
        let folder = folder("no-folder");
        fs::write(&folder, b"a file").unwrap();
        assert!(write(&folder.join("a.bin"), b"data").is_err());
        fs::remove_file(&folder).unwrap();
    }
}
