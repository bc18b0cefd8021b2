//! What was measured, in a file of a folder that the host names.
//!
//! ```
//! use attnc::tune::{DeviceKey, Measurement, TuningCache};
//! let device = DeviceKey { adapter: "a card".into(), api: "vulkan".into(), driver: "1.2".into() };
//! let (mut cache, note) = TuningCache::open(None, device);
//! assert_eq!((cache.measurements().len(), note), (0, None));
//! let found = Measurement {
//!     chosen: "rows.r4d64".into(),
//!     cheapest: "subgroup.g4x8d64".into(),
//!     milliseconds: [("rows.r4d64".into(), 1.5), ("subgroup.g4x8d64".into(), 2.0)].into(),
//!     lengths: [("S".into(), 128)].into(),
//! };
//! cache.add([("a problem".to_owned(), found)].into())?;
//! assert_eq!(cache.measurements()["a problem"].measured().unwrap().ratio, 0.75);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A file is for one adapter, API and driver with its version, which its name is made of; inside stand the version
//! of attnc and a digest of its kernels. What is damaged, or of other kernels, is as if it were not there, which a
//! note says; the next measurement writes it anew. The same measurements give the same bytes.
//!
//! Entry: a folder that only its owner should write to, though a file that somebody made up can do no worse than
//! choose slow kernels. Exit: the folder holds whole files only: they are written beside their place and renamed.

use super::Measurement;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// A larger file is not ours.
const LARGEST: u64 = 1 << 24;

/// What measurements are good for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceKey {
    /// The adapter's name.
    pub adapter: String,
    /// `vulkan`, `metal`, `dx12`, `gl`.
    pub api: String,
    /// The driver and its version.
    pub driver: String,
}

/// The file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Contents {
    /// Of attnc.
    version: String,
    /// Digest of all kernels.
    kernels: String,
    #[serde(flatten)]
    device: DeviceKey,
    /// By problem and candidates.
    measured: BTreeMap<String, Measurement>,
}

/// Measurements of one device.
#[derive(Debug, Clone)]
pub struct TuningCache {
    path: Option<PathBuf>,
    contents: Contents,
}

impl TuningCache {
    /// What `folder`, which need not be there yet, holds for a device; without a folder, nothing, and nothing is
    /// written. A sentence says so where there is a file that cannot be used.
    #[must_use]
    pub fn open(folder: Option<&Path>, device: DeviceKey) -> (Self, Option<String>) {
        let mut cache = Self {
            path: folder.map(|folder| folder.join(file_name(&device))),
            contents: Contents {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                kernels: kernels(),
                device,
                measured: BTreeMap::new(),
            },
        };
        let note = match cache.read() {
            Ok(measured) => {
                cache.contents.measured = measured;
                None
            }
            Err(why) => cache.path.as_ref().map(|path| {
                let path = path.display();
                format!("what kernels were measured to take is not used: {path} {why}; `attnc tune` measures anew")
            }),
        };
        (cache, note)
    }

    /// What was measured, by [`Decision::key`](crate::codegen::choice::Decision::key).
    #[must_use]
    pub fn measurements(&self) -> &BTreeMap<String, Measurement> {
        &self.contents.measured
    }

    /// The file, if there is a folder for it.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Adds measurements, in the place of earlier ones of the same problems, and writes the file.
    ///
    /// # Errors
    /// Where the folder cannot be made or written to: the measurements are known to this cache only then.
    pub fn add(&mut self, found: BTreeMap<String, Measurement>) -> io::Result<()> {
        // Another process may have measured other problems meanwhile.
        if let Ok(others) = self.read() {
            self.contents.measured.extend(others);
        }
        self.contents.measured.extend(found);
        match &self.path {
            Some(path) => write(path, &self.contents),
            None => Ok(()),
        }
    }

    /// What the file holds, nothing where there is none, or why it is of no use.
    fn read(&self) -> Result<BTreeMap<String, Measurement>, String> {
        let Some(path) = &self.path else {
            return Ok(BTreeMap::new());
        };
        let bytes = match fs::metadata(path) {
            Err(error) if is_absent(&error) => return Ok(BTreeMap::new()),
            Ok(found) if found.len() > LARGEST => return Err("is too large".to_owned()),
            _ => fs::read(path).map_err(|error| format!("cannot be read: {error}"))?,
        };
        let found: Contents =
            serde_json::from_slice(&bytes).map_err(|error| format!("is damaged: {error}"))?;
        let ours = &self.contents;
        if found.device != ours.device {
            return Err(format!("is of another device, {}", found.device.adapter));
        }
        if (&found.version, &found.kernels) != (&ours.version, &ours.kernels) {
            return Err(format!("is of attnc {} with other kernels", found.version));
        }
        match found.measured.iter().find(|(_, m)| m.measured().is_none()) {
            Some((key, _)) => Err(format!("is damaged: `{key}` has no time of what it chose")),
            None => Ok(found.measured),
        }
    }
}

/// Whether there is no such file; that its folder is none shows when it is written.
fn is_absent(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory)
}

fn file_name(device: &DeviceKey) -> String {
    let DeviceKey {
        adapter,
        api,
        driver,
    } = device;
    let digest = Sha256::digest(format!("{adapter}\n{api}\n{driver}"));
    format!("tuning_{}.json", hex(&digest[..8]))
}

/// Of everything that kernels are made of, tiles printed by the compiler aside: these go with its version.
fn kernels() -> String {
    let mut digest = Sha256::new();
    for file in crate::shaders::CATALOGUE {
        digest.update(file.name);
        digest.update(file.source);
    }
    hex(&digest.finalize()[..8])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn write(path: &Path, contents: &Contents) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new(""));
    fs::create_dir_all(folder)?;
    let mut beside = tempfile::NamedTempFile::new_in(folder)?;
    let text = serde_json::to_string_pretty(contents)? + "\n";
    beside.write_all(text.as_bytes())?;
    beside.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(driver: &str) -> DeviceKey {
        DeviceKey {
            adapter: "a card".to_owned(),
            api: "vulkan".to_owned(),
            driver: driver.to_owned(),
        }
    }

    fn found(chosen: &str) -> BTreeMap<String, Measurement> {
        let measurement = Measurement {
            chosen: chosen.to_owned(),
            cheapest: "a".to_owned(),
            milliseconds: [("a".to_owned(), 2.0), ("b".to_owned(), 1.5)].into(),
            lengths: [("S".to_owned(), 7)].into(),
        };
        [("p: a b".to_owned(), measurement)].into()
    }

    fn open(folder: &Path, driver: &str) -> (TuningCache, Option<String>) {
        TuningCache::open(Some(folder), device(driver))
    }

    #[test]
    fn what_was_measured_is_found_again_on_that_driver_only() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("made/when/needed");
        let (mut cache, note) = open(&folder, "1");
        assert_eq!((cache.measurements().len(), note), (0, None));
        cache.add(found("b")).unwrap();
        let (again, note) = open(&folder, "1");
        assert_eq!((again.measurements(), note), (&found("b"), None));
        let (other, note) = open(&folder, "2");
        assert_eq!((other.measurements().len(), note), (0, None));
        assert_eq!(
            fs::read_dir(&folder).unwrap().count(),
            1,
            "no file beside it"
        );
    }

    #[test]
    fn the_same_measurements_give_the_same_bytes_and_others_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let (mut cache, _) = open(folder.path(), "1");
        let (mut other, _) = open(folder.path(), "1");
        cache.add(found("b")).unwrap();
        let path = cache.path().unwrap().to_owned();
        let first = fs::read(&path).unwrap();
        cache.add(found("b")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), first);
        let more = found("a").into_values().next().unwrap();
        other.add([("q: a b".to_owned(), more)].into()).unwrap();
        assert_eq!(open(folder.path(), "1").0.measurements().len(), 2);
    }

    #[test]
    fn damaged_and_foreign_files_are_said_and_written_anew() {
        let folder = tempfile::tempdir().unwrap();
        let (mut cache, _) = open(folder.path(), "1");
        cache.add(found("b")).unwrap();
        let path = cache.path().unwrap().to_owned();
        let whole = fs::read_to_string(&path).unwrap();
        let wrong = [
            String::new(),
            "{}".to_owned(),
            whole[..whole.len() - 3].to_owned(),
            whole.replace("\"kernels\": \"", "\"kernels\": \"0"),
            whole.replace(env!("CARGO_PKG_VERSION"), "0.0.0"),
            whole.replace("a card", "a cart"),
            whole.replace("\"chosen\": \"b\"", "\"chosen\": \"c\""),
            whole.replace("1.5", "-1.5"),
            whole.replace("1.5", "1e400"),
        ];
        for text in wrong {
            assert_ne!(text, whole);
            fs::write(&path, &text).unwrap();
            let (mut cache, note) = open(folder.path(), "1");
            assert_eq!(cache.measurements().len(), 0, "{text}");
            let note = note.unwrap();
            assert!(note.contains(path.to_str().unwrap()), "{note}");
            cache.add(found("b")).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), whole);
        }
    }

    #[test]
    fn a_folder_that_cannot_be_written_to_is_an_error_and_what_was_found_is_known() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (mut cache, _) = open(file.path(), "1");
        assert!(cache.add(found("b")).is_err());
        assert_eq!(cache.measurements(), &found("b"));
    }
}
