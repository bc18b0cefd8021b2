//! Named tensors from files: `.npz`, `.npy`, and back to `.npz`.
//!
//! ```
//! use attnc::{HostTensor, Tensors, npz};
//! let tensors = Tensors::from([("ids".to_owned(), HostTensor::new(vec![2], &[7i64, 8]).unwrap())]);
//! let bytes = npz::to_bytes(&tensors)?;
//! assert_eq!(npz::from_bytes(&bytes)?, tensors);
//! # Ok::<(), npz::FileProblem>(())
//! ```
//!
//! What a file claims is never believed: an array is only as large as the bytes that are there. The
//! same tensors give the same bytes. `bfloat16`, which NumPy does not have, is written as `float32`.

mod npy;

use crate::{HostTensor, TensorType, Tensors, files};
use indexmap::IndexMap;
use std::collections::BTreeSet;
use std::io::{Cursor, Read, Seek, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use zip::read::ZipFile;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipArchive, ZipWriter};

/// An array larger than this is refused: 8 GiB.
const MAX_ARRAY_BYTES: u64 = 8 << 30;

/// What is wrong with the contents of an array file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileProblem {
    /// The bytes are not a zip archive, or only the beginning of one.
    #[error("not an .npz archive, or a truncated one: {0}")]
    Zip(#[from] zip::result::ZipError),
    /// The header of an array cannot be read.
    #[error("not a .npy array: {0}")]
    Header(String),
    /// An element type there is no use for.
    #[error("element type {0} is not supported; use {1}")]
    DType(String, String),
    /// Fewer or more bytes than the header says.
    #[error("the header says {claimed}, which takes {expected} bytes, but {found} follow")]
    Length {
        /// Type and shape of the header.
        claimed: String,
        /// Bytes that it takes.
        expected: u128,
        /// Bytes that are there.
        found: u64,
    },
    /// An array larger than any model needs.
    #[error("an array of {0} bytes is too large; at most 8 GiB are read")]
    TooLarge(u64),
    /// One array of an archive.
    #[error("array `{name}`: {problem}")]
    Array {
        /// Its name.
        name: String,
        /// What is wrong with it.
        problem: Box<FileProblem>,
    },
    /// Two arrays of one name.
    #[error("array `{0}` occurs twice")]
    Repeated(String),
    /// A file that cannot be opened, read or written.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

/// A file that could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong.
    #[source]
    pub problem: FileProblem,
}

fn at<T>(path: &Path, result: Result<T, FileProblem>) -> Result<T, FileError> {
    result.map_err(|problem| FileError {
        path: path.to_owned(),
        problem,
    })
}

/// Reads all arrays of an `.npz` file, in the order in which they stand there.
///
/// # Errors
/// Where the file is not one, is damaged, or holds an array of a type there is no use for.
pub fn read(path: &Path) -> Result<Tensors, FileError> {
    let file = files::open(path).map_err(FileProblem::from);
    at(
        path,
        file.and_then(|file| arrays(std::io::BufReader::new(file))),
    )
}

/// The types of all arrays of an `.npz` file. Only their headers are read and inflated.
///
/// # Errors
/// As [`read`], as far as headers show it.
pub fn read_types(path: &Path) -> Result<IndexMap<String, TensorType>, FileError> {
    let file = files::open(path).map_err(FileProblem::from);
    at(
        path,
        file.and_then(|file| {
            let from = std::io::BufReader::new(file);
            entries(from, |entry, size| npy::read_type(entry, size))
        }),
    )
}

/// As [`read`], from memory.
///
/// # Errors
/// As [`read`].
pub fn from_bytes(bytes: &[u8]) -> Result<Tensors, FileProblem> {
    arrays(Cursor::new(bytes))
}

/// Reads a `.npy` file.
///
/// # Errors
/// Where the file is not one, is damaged, or is of a type there is no use for.
pub fn read_npy(path: &Path) -> Result<HostTensor, FileError> {
    at(
        path,
        files::open(path)
            .map_err(FileProblem::from)
            .and_then(|file| {
                let size = file.metadata()?.len();
                npy::read(&mut std::io::BufReader::new(file), size)
            }),
    )
}

/// The type of a `.npy` file, of which only the header is read.
///
/// # Errors
/// As [`read_npy`], as far as the header shows it.
pub fn read_npy_type(path: &Path) -> Result<TensorType, FileError> {
    at(
        path,
        files::open(path)
            .map_err(FileProblem::from)
            .and_then(|file| {
                let size = file.metadata()?.len();
                npy::read_type(&mut std::io::BufReader::new(file), size)
            }),
    )
}

fn arrays(from: impl Read + Seek) -> Result<Tensors, FileProblem> {
    // One byte more than claimed is enough to see that the claim is wrong.
    entries(from, |entry, size| {
        npy::read(&mut entry.take(size.saturating_add(1)), size)
    })
}

/// What `read` makes of each entry, of the size that the archive claims, by name.
fn entries<R: Read + Seek, T>(
    from: R,
    read: impl Fn(&mut ZipFile<'_, R>, u64) -> Result<T, FileProblem>,
) -> Result<IndexMap<String, T>, FileProblem> {
    let archive = ZipArchive::new(from)?;
    let directory = archive.central_directory_start();
    // The archive keeps the last of several entries of one name and does not say so.
    let mut from = archive.into_inner();
    if let Some(name) = repeated_name(&mut from, directory)? {
        return Err(FileProblem::Repeated(name));
    }
    let mut archive = ZipArchive::new(from)?;
    let mut found = IndexMap::new();
    for i in 0..archive.len() {
        let mut entry = archive.by_index(i)?;
        let name = entry
            .name()
            .strip_suffix(".npy")
            .unwrap_or(entry.name())
            .to_owned();
        let size = entry.size();
        let array = read(&mut entry, size).map_err(|problem| FileProblem::Array {
            name: name.clone(),
            problem: Box::new(problem),
        })?;
        if found.insert(name.clone(), array).is_some() {
            return Err(FileProblem::Repeated(name));
        }
    }
    Ok(found)
}

/// The first name that occurs twice in the central directory of an archive, which starts at `start`
/// (PKWARE, APPNOTE 6.3.10, section 4.3.12).
fn repeated_name(from: &mut (impl Read + Seek), start: u64) -> std::io::Result<Option<String>> {
    const SIGNATURE: &[u8] = b"PK\x01\x02";
    const FIXED: usize = 46;
    from.seek(SeekFrom::Start(start))?;
    let mut names = BTreeSet::new();
    loop {
        let mut header = Vec::with_capacity(FIXED);
        from.take(FIXED as u64).read_to_end(&mut header)?;
        if header.len() < FIXED || !header.starts_with(SIGNATURE) {
            return Ok(None);
        }
        let length = |at: usize| u64::from(u16::from_le_bytes([header[at], header[at + 1]]));
        let (name_length, rest) = (length(28), length(30) + length(32));
        let mut name = Vec::new();
        from.take(name_length).read_to_end(&mut name)?;
        std::io::copy(&mut from.take(rest), &mut std::io::sink())?;
        let shown = String::from_utf8_lossy(&name).into_owned();
        if !names.insert(name) {
            return Ok(Some(shown.trim_end_matches(".npy").to_owned()));
        }
    }
}

/// Writes an `.npz` file.
///
/// # Errors
/// Where the file cannot be written.
pub fn write(path: &Path, tensors: &Tensors) -> Result<(), FileError> {
    at(
        path,
        to_bytes(tensors).and_then(|bytes| Ok(std::fs::write(path, bytes)?)),
    )
}

/// The bytes of an `.npz` file: arrays stored uncompressed, with the zip format's zero date.
///
/// # Errors
/// Where the archive would break a limit of the format.
pub fn to_bytes(tensors: &Tensors) -> Result<Vec<u8>, FileProblem> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, tensor) in tensors {
        let large = tensor.bytes().len() as u64 > u64::from(u32::MAX / 2);
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Stored)
            .last_modified_time(DateTime::default())
            .large_file(large);
        writer.start_file(format!("{name}.npy"), options)?;
        npy::write(&mut writer, tensor)?;
    }
    writer.flush()?;
    Ok(writer.finish()?.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostDType;
    use half::{bf16, f16};

    fn sample() -> Tensors {
        let t = |t: Result<HostTensor, _>| t.unwrap();
        Tensors::from([
            (
                "a/b".to_owned(),
                t(HostTensor::new(vec![2, 2], &[1i64, -2, 3, 4])),
            ),
            (
                "mask".to_owned(),
                t(HostTensor::new(vec![3], &[true, false, true])),
            ),
            (
                "half".to_owned(),
                t(HostTensor::new(vec![1], &[f16::from_f32(0.5)])),
            ),
            ("scalar".to_owned(), t(HostTensor::new(vec![], &[2.5f64]))),
            (
                "empty".to_owned(),
                t(HostTensor::new::<f32>(vec![0, 4], &[])),
            ),
            ("bytes".to_owned(), t(HostTensor::new(vec![2], &[1u8, 255]))),
        ])
    }

    #[test]
    fn what_is_written_reads_back() {
        let bytes = to_bytes(&sample()).unwrap();
        assert_eq!(from_bytes(&bytes).unwrap(), sample());
        assert_eq!(bytes, to_bytes(&sample()).unwrap());
    }

    #[test]
    fn bfloat16_is_written_as_float32() {
        let tensor = HostTensor::new(vec![1], &[bf16::from_f32(1.5)]).unwrap();
        let bytes = to_bytes(&Tensors::from([("x".to_owned(), tensor)])).unwrap();
        let back = &from_bytes(&bytes).unwrap()["x"];
        assert_eq!((back.dtype(), back.to_f64()), (HostDType::F32, vec![1.5]));
    }

    #[test]
    fn a_truncated_file_is_an_error_wherever_it_ends() {
        let bytes = to_bytes(&sample()).unwrap();
        for end in 0..bytes.len() {
            assert!(from_bytes(&bytes[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn a_changed_byte_never_panics() {
        let bytes = to_bytes(&sample()).unwrap();
        for i in 0..bytes.len() {
            for change in [0x01, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[i] ^= change;
                let _ = from_bytes(&changed);
            }
        }
    }

    #[test]
    fn an_array_says_what_is_wrong_with_it() {
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
        writer.start_file("x.npy", options).unwrap();
        writer.write_all(b"not an array").unwrap();
        let error = from_bytes(&writer.finish().unwrap().into_inner()).unwrap_err();
        assert!(
            error.to_string().starts_with("array `x`: not a .npy array"),
            "{error}"
        );
    }
}
