//! What the trials share: where things are, which backends there are, how results are compared.

use crate::forced;
use attnc::backend::{Backends, Opened};
use attnc::gpu::{AdapterChoice, Gpu};
use attnc::verify::{Tolerance, compare_all};
use attnc::{Error, Model, Session, SessionOptions, Tensors, opt};
use libtest_mimic::{Completion, Failed, Trial};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

pub(crate) type Outcome = Result<(), Failed>;

/// The root of the workspace.
pub(crate) fn workspace() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().expect("the package is in the workspace")
}

/// A folder for what the trials make, under `target`.
pub(crate) fn scratch() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
}

/// A folder of the material beside the workspace, where that is there.
pub(crate) fn material(path: &str) -> Option<PathBuf> {
    let folder = workspace().join("../shared/cases").join(path);
    folder.is_dir().then_some(folder)
}

/// Files of a folder whose names end so, by name.
pub(crate) fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == extension))
        .collect();
    found.sort();
    found
}

/// The last part of a path without its extension.
pub(crate) fn stem(path: &Path) -> String {
    path.file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| value == "1")
}

/// Something a trial needs: what to do where it is missing.
#[derive(Clone)]
pub(crate) enum Need {
    Nothing,
    Gpu,
    /// A GPU with cooperative matrices.
    Matrices,
    /// A fetched file.
    Fetched(PathBuf),
}

impl Need {
    /// Why the trial cannot run, and whether that is a failure.
    fn missing(&self) -> Option<(String, bool)> {
        match self {
            Self::Nothing => None,
            Self::Gpu => Some((gpu().as_ref().err()?.clone(), is_set("ATTNC_REQUIRE_GPU"))),
            Self::Matrices => match gpu() {
                Ok(gpu) if gpu.profile.matrix_size().is_some() => None,
                Ok(_) => Some(("the adapter has no cooperative matrices".to_owned(), false)),
                Err(_) => Self::Gpu.missing(),
            },
            Self::Fetched(path) if path.exists() => None,
            Self::Fetched(path) => {
                let why = format!("no {}: run `cargo xtask fetch`", path.display());
                Some((why, is_set("ATTNC_REQUIRE_FETCH")))
            }
        }
    }
}

/// The adapter, a software one if need be, opened once for all trials.
pub(crate) fn gpu() -> &'static Result<Gpu, String> {
    static OPENED: OnceLock<Result<Gpu, String>> = OnceLock::new();
    OPENED.get_or_init(|| {
        let opened = Gpu::open(&AdapterChoice::any());
        opened.map_err(|e| format!("no GPU adapter: {e}"))
    })
}

/// The standard backends, the GPU being the one that the trials share, and that one as `site` says.
fn backends(site: &str) -> Backends {
    let mut backends = Backends::standard();
    if site != "cpu"
        && let Ok(gpu) = gpu()
        && forced::backend(site, gpu).is_some()
    {
        let name = site.to_owned();
        backends.register(site, move |_| {
            let backend = forced::backend(&name, gpu).expect("found before");
            Ok(Opened::chosen(backend))
        });
    }
    backends
}

/// A trial that is ignored, or fails, where a need is missing.
pub(crate) fn trial(
    name: impl Into<String>,
    needs: &[Need],
    check: impl FnOnce() -> Outcome + Send + 'static,
) -> Trial {
    let needs = needs.to_vec();
    Trial::ignorable_test(name, move || {
        for need in &needs {
            match need.missing() {
                Some((why, true)) => return Err(why.into()),
                Some((why, false)) => return Ok(Completion::ignored_with(why)),
                None => {}
            }
        }
        check().map(|()| Completion::Completed)
    })
}

/// The trial on each backend.
pub(crate) fn on_both(
    name: &str,
    needs: &[Need],
    check: impl Fn(&'static str) -> Outcome + Clone + Send + 'static,
) -> Vec<Trial> {
    let on = |backend: &'static str, need: Need| {
        let needs = [needs, &[need]].concat();
        let check = check.clone();
        trial(format!("{name} on {backend}"), &needs, move || {
            check(backend)
        })
    };
    vec![on("cpu", Need::Nothing), on("gpu", Need::Gpu)]
}

/// One trial that says why a whole group is not there.
pub(crate) fn absent(name: &str, why: &'static str) -> Trial {
    Trial::ignorable_test(name, move || Ok(Completion::ignored_with(why)))
}

/// The model on a backend: `cpu`, or a site of the GPU ([`forced`]).
pub(crate) fn session(model: &Model, backend: &str) -> Result<Session, Error> {
    let options = SessionOptions {
        backend: backend.to_owned(),
        ..SessionOptions::default()
    };
    Session::of_model(model, &options, &backends(backend))
}

/// The passes without attention fusion.
pub(crate) fn unfused() -> opt::Options {
    opt::Options {
        fuse_attention: false,
        ..opt::Options::default()
    }
}

/// Fails with every output that is off by more than `rtol` of its range.
pub(crate) fn agree(at: &str, expected: &Tensors, found: &Tensors, rtol: f64) -> Outcome {
    let tolerance = Tolerance {
        rtol: Some(rtol),
        ..Tolerance::default()
    };
    let comparison = compare_all(expected, found, &tolerance)?;
    let wrong = comparison.outputs.iter().filter(|o| !o.passed);
    let wrong: Vec<_> = wrong
        .map(|o| format!("{at}: {} {}: {}", o.name, o.found, o.problem))
        .collect();
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("\n").into())
    }
}

/// Fails where the two differ in a bit.
pub(crate) fn same_bits(at: &str, expected: &Tensors, found: &Tensors) -> Outcome {
    for (name, want) in expected {
        let have = found.get(name).ok_or_else(|| format!("{at}: no {name}"))?;
        check_eq(at, want.shape(), have.shape())?;
        let mut pairs = want.values().zip(have.values());
        let bits = |x: attnc::Value| x.to_f64().to_bits();
        if let Some(i) = pairs.position(|(a, b)| bits(a) != bits(b)) {
            let (index, want, have) = (want.index_of(i), want.value(i), have.value(i));
            return Err(format!("{at}: {name}{index:?} was {want}, is {have}").into());
        }
    }
    Ok(())
}

/// Fails with both sides.
pub(crate) fn check_eq<T: PartialEq + std::fmt::Debug>(what: &str, want: T, have: T) -> Outcome {
    if want == have {
        return Ok(());
    }
    Err(format!("{what}: expected {want:?}, found {have:?}").into())
}

/// Fails with a sentence.
pub(crate) fn ensure(good: bool, otherwise: impl FnOnce() -> String) -> Outcome {
    if good {
        Ok(())
    } else {
        Err(otherwise().into())
    }
}
