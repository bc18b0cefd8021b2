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

use crate::{HostTensor, Tensors};
use std::io::{Cursor, Read as _, Seek, Write as _};
use std::path::{Path, PathBuf};
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
    let file = std::fs::File::open(path).map_err(FileProblem::from);
    at(
        path,
        file.and_then(|file| archive(std::io::BufReader::new(file))),
    )
}

/// As [`read`], from memory.
///
/// # Errors
/// As [`read`].
pub fn from_bytes(bytes: &[u8]) -> Result<Tensors, FileProblem> {
    archive(Cursor::new(bytes))
}

/// Reads a `.npy` file.
///
/// # Errors
/// Where the file is not one, is damaged, or is of a type there is no use for.
pub fn read_npy(path: &Path) -> Result<HostTensor, FileError> {
    at(
        path,
        std::fs::File::open(path)
            .map_err(FileProblem::from)
            .and_then(|file| {
                let size = file.metadata()?.len();
                npy::read(&mut std::io::BufReader::new(file), size)
            }),
    )
}

fn archive(from: impl std::io::Read + Seek) -> Result<Tensors, FileProblem> {
    let mut archive = ZipArchive::new(from)?;
    let mut tensors = Tensors::new();
    for i in 0..archive.len() {
        let entry = archive.by_index(i)?;
        let name = entry
            .name()
            .strip_suffix(".npy")
            .unwrap_or(entry.name())
            .to_owned();
        let size = entry.size();
        // One byte more than claimed is enough to see that the claim is wrong.
        let tensor = npy::read(&mut entry.take(size.saturating_add(1)), size);
        let tensor = tensor.map_err(|problem| FileProblem::Array {
            name: name.clone(),
            problem: Box::new(problem),
        })?;
        if tensors.insert(name.clone(), tensor).is_some() {
            return Err(FileProblem::Repeated(name));
        }
    }
    Ok(tensors)
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
