//! Writes `.npz`: a zip of `.npy` files (NumPy enhancement proposal 1, format version 1.0).
//!
//! Entries are stored uncompressed with the zip format's zero date, so the same arrays give the
//! same bytes.

use std::io::{Cursor, Write as _};

use anyhow::Result;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

/// A row-major array.
pub(super) enum Array {
    F32(Vec<usize>, Vec<f32>),
    I64(Vec<usize>, Vec<i64>),
}

impl Array {
    fn npy(&self) -> Vec<u8> {
        let (kind, shape, data): (_, _, Vec<u8>) = match self {
            Self::F32(shape, data) => (
                "<f4",
                shape,
                data.iter().flat_map(|x| x.to_le_bytes()).collect(),
            ),
            Self::I64(shape, data) => (
                "<i8",
                shape,
                data.iter().flat_map(|x| x.to_le_bytes()).collect(),
            ),
        };
        // The tuple of Python: a lone dim keeps its comma.
        let dims: String = shape.iter().map(|dim| format!("{dim}, ")).collect();
        let mut header =
            format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({dims}), }}");
        // Magic, version and length take 10 bytes; the data starts at a multiple of 64.
        let padded = (10 + header.len() + 1).next_multiple_of(64);
        header.extend(std::iter::repeat_n(' ', padded - 11 - header.len()));
        header.push('\n');
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        bytes
    }
}

/// The file that holds these arrays by name.
pub(super) fn bytes(arrays: &[(&str, Array)]) -> Result<Vec<u8>> {
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Stored)
        .last_modified_time(DateTime::default());
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, array) in arrays {
        writer.start_file(format!("{name}.npy"), options)?;
        writer.write_all(&array.npy())?;
    }
    Ok(writer.finish()?.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_says_type_and_shape_and_the_data_is_aligned() {
        let npy = Array::I64(vec![2, 3], vec![1, 2, 3, 4, 5, 258]).npy();
        let start = npy.len() - 6 * 8;
        assert_eq!(start % 64, 0);
        let header = String::from_utf8_lossy(&npy[10..start]).into_owned();
        assert!(
            header.starts_with("{'descr': '<i8', 'fortran_order': False, 'shape': (2, 3, ), }")
        );
        assert!(header.ends_with('\n'));
        assert_eq!(
            usize::from(npy[8]) + 256 * usize::from(npy[9]),
            header.len()
        );
        assert_eq!(npy[npy.len() - 8..], [2, 1, 0, 0, 0, 0, 0, 0]);
    }
}
