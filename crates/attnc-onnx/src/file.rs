//! Mapping files: the model, and the files its external data lies in.

use crate::error::{ImportError, OpError, OpResult};
use crate::proto::TensorProto;
use attnc_ir::Diagnostic;
use bytes::Bytes;
use std::collections::HashMap;
use std::fs::File;
use std::path::{Component, Path, PathBuf};

/// Maps a file; its bytes are read when they are used.
///
/// Links are followed (model caches are made of them); a pipe would wait for ever, and is refused.
pub(crate) fn map(path: &Path) -> std::io::Result<Bytes> {
    if !path.metadata()?.is_file() {
        let kind = std::io::ErrorKind::InvalidInput;
        return Err(std::io::Error::new(kind, "it is not a regular file"));
    }
    let file = File::open(path)?;
    if file.metadata()?.len() == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: a mapping is sound as long as nobody shortens or writes the file while it lives, which no
    // process can rule out for another. Copying instead would read and hold every weight once more; model
    // files are not written in place, and this is the contract of every loader of large models.
    #[expect(
        unsafe_code,
        reason = "mapping a file is unsafe, and copying weights is not an option"
    )]
    let map = unsafe { memmap2::Mmap::map(&file)? };
    Ok(Bytes::from_owner(map))
}

/// As [`map`], with the path in the error.
pub(crate) fn map_model(path: &Path) -> Result<Bytes, ImportError> {
    map(path).map_err(|source| ImportError::Unreadable {
        path: path.to_owned(),
        source,
    })
}

/// The files beside the model, each mapped once.
pub(crate) struct Files {
    dir: Option<PathBuf>,
    maps: HashMap<String, Result<Bytes, String>>,
}

impl Files {
    pub(crate) fn new(dir: Option<&Path>) -> Self {
        Self {
            dir: dir.map(Path::to_owned),
            maps: HashMap::new(),
        }
    }

    /// The bytes of a tensor whose elements are in another file.
    pub(crate) fn external(&mut self, tensor: &TensorProto) -> OpResult<Bytes> {
        let fail = |message: String| -> OpError {
            Diagnostic::error("external-data", message)
                .at(&tensor.name)
                .note("external data must lie in the model's folder or below it")
                .into()
        };
        let (mut location, mut offset, mut length) = (None, 0, None);
        for entry in &tensor.external_data {
            let number = || {
                let text = entry.value.trim();
                text.parse::<usize>()
                    .map_err(|_| fail(format!("{} is `{text}`, expected a number", entry.key)))
            };
            match entry.key.as_str() {
                "location" => location = Some(entry.value.as_str()),
                "offset" => offset = number()?,
                "length" => length = Some(number()?),
                "checksum" | "basepath" => {}
                key => {
                    return Err(OpError::unsupported(
                        format!("external data with the key `{key}`"),
                        "location, offset and length only",
                    ));
                }
            }
        }
        let location = location.ok_or_else(|| fail("external data without a location".into()))?;
        let bytes = self.open(location).map_err(&fail)?;
        let rest = bytes.len().checked_sub(offset);
        let length = length.or(rest).unwrap_or(0);
        if rest.is_none_or(|rest| length > rest) {
            return Err(fail(format!(
                "`{location}` has {} bytes, expected {length} from byte {offset}",
                bytes.len()
            )));
        }
        Ok(bytes.slice(offset..offset + length))
    }

    fn open(&mut self, location: &str) -> Result<Bytes, String> {
        let dir = self
            .dir
            .as_deref()
            .ok_or_else(|| format!("`{location}`: the model's folder is not known"))?;
        let inside = |c: Component<'_>| matches!(c, Component::Normal(_) | Component::CurDir);
        if location.is_empty() || !Path::new(location).components().all(inside) {
            return Err(format!("`{location}` leads out of the model's folder"));
        }
        let path = dir.join(location);
        self.maps
            .entry(location.to_owned())
            .or_insert_with(|| map(&path).map_err(|e| format!("cannot read `{location}`: {e}")))
            .clone()
    }
}
