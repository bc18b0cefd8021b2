//! Inputs from the command line: `FILE.npz`, `NAME=FILE.npy`, or a folder of ONNX test data.
//!
//! A folder holds `input_0.pb`, `input_1.pb`, … (expected values `output_0.pb`, …), each one
//! `TensorProto`, which belong to the inputs of the model by position.

use crate::host_tensor::TensorError;
use crate::plan::DimValues;
use crate::rules::Rules;
use crate::{Error, HostDType, HostTensor, Port, TensorType, Tensors, files, inputs, npz, onnx};
use indexmap::IndexMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Inputs of more bytes than this in all are checked before their elements are read: 16 MiB.
const UNCHECKED_BYTES: usize = 16 << 20;

/// Where tensors come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// All arrays of an archive, by name.
    Npz(PathBuf),
    /// One array for one name.
    Npy {
        /// The input's name.
        name: String,
        /// The file.
        path: PathBuf,
    },
    /// ONNX test data, by position.
    Folder(PathBuf),
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let extension = |ext| Path::new(text).extension().is_some_and(|e| e == ext);
        // A file may have a `=` in its path; one that is there is meant as it stands.
        if Path::new(text).is_dir() {
            return Ok(Self::Folder(text.into()));
        }
        if extension("npz") {
            return Ok(Self::Npz(text.into()));
        }
        match text.split_once('=') {
            Some((name, path)) if extension("npy") && !name.is_empty() => Ok(Self::Npy {
                name: name.to_owned(),
                path: path.into(),
            }),
            _ => Err(format!(
                "`{text}` is neither FILE.npz, nor NAME=FILE.npy, nor a folder that is there"
            )),
        }
    }
}

/// What the files of a folder are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// `input_N.pb`.
    Input,
    /// `output_N.pb`.
    Output,
}

impl Role {
    fn stem(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Output => "output",
        }
    }
}

/// Reads all sources; `ports` are the inputs or outputs they are for.
///
/// # Errors
/// Files that cannot be read, names given twice, more files in a folder than the model has ports.
pub fn read(sources: &[Source], role: Role, ports: &[Port]) -> Result<Tensors, Error> {
    let mut tensors = Tensors::new();
    for source in sources {
        let found = match source {
            Source::Npz(path) => npz::read(path)?,
            Source::Npy { name, path } => Tensors::from([(name.clone(), npz::read_npy(path)?)]),
            Source::Folder(path) => read_folder(path, role, ports)?,
        };
        for (name, tensor) in found {
            if tensors.insert(name.clone(), tensor).is_some() {
                return Err(Error::Usage(format!("tensor `{name}` is given twice")));
            }
        }
    }
    Ok(tensors)
}

/// As [`read`], of the inputs of a model. Before large arrays are read, or inflated, their headers are
/// checked; small ones are left to [`inputs::bind`], which knows their values as well.
///
/// # Errors
/// As [`read`], and where large inputs do not fit the model.
pub fn read_inputs(
    sources: &[Source],
    ports: &[Port],
    rules: &Rules,
    dims: &DimValues,
) -> Result<Tensors, Error> {
    let types = types(sources, ports)?;
    let bytes = types.values().map(|t| t.bytes().unwrap_or(usize::MAX));
    if bytes.fold(0, usize::saturating_add) > UNCHECKED_BYTES {
        inputs::check_types(ports, rules, &types, dims)?;
    }
    read(sources, Role::Input, ports)
}

/// The types of what the sources hold. Test data is not compressed, so that it can only be as large as its
/// files; it is read to see its types.
fn types(sources: &[Source], ports: &[Port]) -> Result<IndexMap<String, TensorType>, Error> {
    let mut types = IndexMap::new();
    for source in sources {
        match source {
            Source::Npz(path) => types.extend(npz::read_types(path)?),
            Source::Npy { name, path } => {
                types.insert(name.clone(), npz::read_npy_type(path)?);
            }
            Source::Folder(path) => {
                let found = read_folder(path, Role::Input, ports)?;
                types.extend(found.into_iter().map(|(name, t)| (name, t.ty())));
            }
        }
    }
    Ok(types)
}

fn read_folder(dir: &Path, role: Role, ports: &[Port]) -> Result<Tensors, Error> {
    let path_of = |n: usize| dir.join(format!("{}_{n}.pb", role.stem()));
    if path_of(ports.len()).exists() {
        let (count, role) = (ports.len(), role.stem());
        return Err(Error::Usage(format!(
            "{}: there are more {role} files than the {count} {role}s of the model",
            dir.display()
        )));
    }
    let present = ports.iter().enumerate();
    let present = present
        .map(|(n, port)| (port, path_of(n)))
        .filter(|(_, path)| path.exists());
    present
        .map(|(port, path)| Ok((port.name.clone(), read_pb(&path)?)))
        .collect()
}

/// Reads a file that holds one ONNX `TensorProto`.
///
/// # Errors
/// Where it cannot be read, is damaged, or is of a type there is no use for.
pub fn read_pb(path: &Path) -> Result<HostTensor, Error> {
    files::check(path).map_err(|error| Error::Io {
        path: path.to_owned(),
        error,
    })?;
    let import = |error| Error::Import {
        path: path.to_owned(),
        error,
    };
    let file = onnx::tensor_pb::read(path).map_err(import)?;
    let usage = |what: String| Error::Usage(format!("{}: {what}", path.display()));
    let dtype = HostDType::from_name(file.elem_type)
        .ok_or_else(|| usage(format!("element type {} is not supported", file.elem_type)))?;
    HostTensor::from_bytes(dtype, file.shape, file.bytes.to_vec())
        .map_err(|error: TensorError| usage(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_forms_are_told_apart() {
        assert_eq!("a=b.npz".parse(), Ok(Source::Npz("a=b.npz".into())));
        let npy = Source::Npy {
            name: "x".into(),
            path: "dir/x.npy".into(),
        };
        assert_eq!("x=dir/x.npy".parse(), Ok(npy));
        assert_eq!(".".parse(), Ok(Source::Folder(".".into())));
        for wrong in ["x.npy", "=x.npy", "x=y", "nowhere/", ""] {
            let error = wrong.parse::<Source>().unwrap_err();
            assert!(error.contains("neither FILE.npz"), "{wrong}: {error}");
        }
    }
}
