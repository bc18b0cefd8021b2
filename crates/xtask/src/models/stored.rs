//! Where the weights of a safetensors file lie in it.
//!
//! The file is the length of a JSON header in 8 bytes, the header, and the elements; offsets in the
//! header count from its end (the safetensors README, "Format").

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

/// The name such a file has beside its model.
pub(super) const FILE: &str = "model.safetensors";

/// A header longer than this is no header.
const HEADER_BYTES: u64 = 100 << 20;

/// An f32 weight in the file.
pub(super) struct Stored {
    pub(super) shape: Vec<i64>,
    /// Its bytes, counted from the start of the file.
    pub(super) bytes: Range<u64>,
}

#[derive(serde::Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<i64>,
    data_offsets: [u64; 2],
}

/// The f32 weights by name.
pub(super) fn read(path: &Path) -> Result<BTreeMap<String, Stored>> {
    let shown = path.display();
    let mut file = File::open(path).with_context(|| format!("cannot open {shown}"))?;
    let mut length = [0; 8];
    file.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    ensure!(
        length <= HEADER_BYTES,
        "{shown}: a header of {length} bytes"
    );
    let mut header = Vec::new();
    file.take(length).read_to_end(&mut header)?;
    let mut entries: BTreeMap<String, serde_json::Value> =
        serde_json::from_slice(&header).with_context(|| format!("the header of {shown}"))?;
    entries.remove("__metadata__");
    let mut stored = BTreeMap::new();
    for (name, entry) in entries {
        let entry: Entry = serde_json::from_value(entry)
            .with_context(|| format!("{shown}: the entry of `{name}`"))?;
        if entry.dtype == "F32" {
            let [start, end] = entry.data_offsets.map(|offset| 8 + length + offset);
            let shape = entry.shape;
            stored.insert(
                name,
                Stored {
                    shape,
                    bytes: start..end,
                },
            );
        }
    }
    Ok(stored)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_count_from_the_end_of_the_header() {
        let header = br#"{"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2,1],"data_offsets":[8,16]},"ids":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}}"#;
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header);
        let path = std::env::temp_dir().join(format!("stored-{}.safetensors", std::process::id()));
        std::fs::write(&path, &bytes).unwrap();
        let stored = read(&path);
        std::fs::remove_file(&path).unwrap();
        let stored = stored.unwrap();
        assert_eq!(stored.keys().collect::<Vec<_>>(), ["w"], "f32 only");
        assert_eq!(stored["w"].shape, [2, 1]);
        let end = 8 + header.len() as u64;
        assert_eq!(stored["w"].bytes, end + 8..end + 16);
    }
}
