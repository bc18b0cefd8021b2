//! Options that several subcommands share.

use crate::progress;
use attnc::codegen::choice::{Choices, KernelShape};
use attnc::plan::{DeviceProfile, DimValues};
use attnc::sources::{self, Source};
use attnc::{Error, Model, Port, Rules, SessionOptions, Tensors, opt, random};
use std::path::{Path, PathBuf};

/// `NAME=N`, for `--dim`.
#[derive(Debug, Clone)]
pub(crate) struct NamedDim {
    name: String,
    value: i64,
}

impl std::str::FromStr for NamedDim {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not NAME=N with a whole number N of at least 0");
        let (name, value) = text.split_once('=').ok_or_else(wrong)?;
        let value: i64 = value.parse().map_err(|_| wrong())?;
        if name.is_empty() || value < 0 {
            return Err(wrong());
        }
        Ok(Self {
            name: name.to_owned(),
            value,
        })
    }
}

/// Which kernels to prefer.
#[derive(clap::Args)]
pub(crate) struct Kernels {
    /// The kernel shape to use wherever there is one, instead of what the cost model picks
    #[arg(long = "kernels", value_name = "SHAPE", value_parser = kernel_shape)]
    shape: Option<KernelShape>,
}

impl Kernels {
    /// What they say to the compiler.
    pub(crate) fn choices(&self) -> Choices {
        self.shape.map(Choices::forced).unwrap_or_default()
    }
}

fn kernel_shape(name: &str) -> Result<KernelShape, String> {
    let known = KernelShape::ALL.map(KernelShape::name).join(", ");
    KernelShape::named(name)
        .ok_or_else(|| format!("no kernel shape is called so; there are {known}"))
}

/// Where to run.
#[derive(clap::Args)]
pub(crate) struct Device {
    /// auto (a real GPU if there is one, else the CPU), cpu, or gpu (a software adapter will do)
    #[arg(long, default_value = "auto")]
    backend: String,
    /// Use the first adapter whose description contains TEXT (see `attnc devices`)
    #[arg(long, value_name = "TEXT")]
    adapter: Option<String>,
    #[command(flatten)]
    cache: Cache,
}

impl Device {
    /// The options of a session there.
    pub(crate) fn session(&self) -> SessionOptions {
        SessionOptions {
            backend: self.backend.clone(),
            adapter: self.adapter.clone(),
            cache: self.cache.folder(),
            ..SessionOptions::default()
        }
    }
}

/// What is kept between processes.
#[derive(clap::Args)]
pub(crate) struct Cache {
    /// Neither use nor keep compiled pipelines and what `attnc tune` measured (they are kept in the user's cache
    /// folder; the variable ATTNC_CACHE_DIR names another, and none where it is empty)
    #[arg(long)]
    no_cache: bool,
}

impl Cache {
    /// Where it is: the folder that `ATTNC_CACHE_DIR` names, else one of the user's.
    pub(crate) fn folder(&self) -> Option<PathBuf> {
        match std::env::var_os("ATTNC_CACHE_DIR") {
            _ if self.no_cache => None,
            Some(folder) if folder.is_empty() => None,
            Some(folder) => Some(folder.into()),
            None => Some(dirs::cache_dir()?.join("attnc")),
        }
    }
}

/// Where to run, and with which passes and kernels.
#[derive(clap::Args)]
pub(crate) struct Target {
    #[command(flatten)]
    device: Device,
    /// Compile without attention fusion, for comparison
    #[arg(long)]
    no_fuse: bool,
    #[command(flatten)]
    kernels: Kernels,
    /// Fail where an attention does not fuse, or where the CPU has to stand in for a GPU
    #[arg(long)]
    require_fused: bool,
    /// Stop the passes after N rewrites, to find a bad one
    #[arg(long, value_name = "N")]
    stop_after: Option<usize>,
}

impl Target {
    /// Refuses what would have no effect on a bundle, which is compiled already.
    pub(crate) fn check_for_bundle(&self) -> Result<(), Error> {
        let given = [
            ("--no-fuse", self.no_fuse),
            ("--stop-after", self.stop_after.is_some()),
            ("--kernels", self.kernels.shape.is_some()),
        ];
        let given: Vec<_> = given.iter().filter(|o| o.1).map(|o| o.0).collect();
        if given.is_empty() {
            return Ok(());
        }
        Err(Error::Usage(format!(
            "{} cannot change a bundle, which is compiled already: give the model, or leave it out",
            given.join(" and ")
        )))
    }

    /// The options of a session.
    pub(crate) fn session(&self) -> SessionOptions {
        SessionOptions {
            passes: opt::Options {
                fuse_attention: !self.no_fuse,
                stop_after: self.stop_after,
            },
            choices: self.kernels.choices(),
            require_fused: self.require_fused,
            ..self.device.session()
        }
    }
}

/// Where inputs come from.
#[derive(clap::Args)]
pub(crate) struct Inputs {
    /// FILE.npz (arrays by name), NAME=FILE.npy (one array), or a folder of ONNX test data
    /// (input_N.pb by position); repeat to merge
    #[arg(
        short,
        long = "input",
        value_name = "SOURCE",
        conflicts_with = "random"
    )]
    input: Vec<Source>,
    /// Draw all inputs from this seed; lengths then come from --dim
    #[arg(long, value_name = "SEED")]
    random: Option<u64>,
    /// The value of a length, as B=2; repeat for more
    #[arg(long = "dim", value_name = "NAME=N")]
    dims: Vec<NamedDim>,
}

impl Inputs {
    /// The lengths given.
    ///
    /// # Errors
    /// Each that is given twice with different values.
    pub(crate) fn dims(&self) -> Result<DimValues, Error> {
        dim_values(&self.dims)
    }

    /// Reads the inputs of a model, or draws them.
    pub(crate) fn of_model(&self, model: &Model) -> Result<Tensors, Error> {
        match self.random {
            Some(seed) => random::inputs(model, &self.dims()?, seed),
            None => self.read(&model.inputs, &model.rules),
        }
    }

    /// As [`Inputs::of_model`]; where nothing says where inputs come from, they are drawn from seed 0.
    pub(crate) fn or_random(&self, model: &Model) -> Result<Tensors, Error> {
        if self.random.is_none() && self.input.is_empty() {
            note!("no inputs given: drawn from seed 0");
            return random::inputs(model, &self.dims()?, 0);
        }
        self.of_model(model)
    }

    /// Reads the inputs of a bundle, which cannot say what ids it would take.
    pub(crate) fn of_ports(&self, ports: &[Port]) -> Result<Tensors, Error> {
        if self.random.is_some() {
            return Err(Error::Usage(
                "--random needs the model: a bundle does not say which ids its tables hold; give -i".to_owned(),
            ));
        }
        self.read(ports, &Rules::default())
    }

    fn read(&self, ports: &[Port], rules: &Rules) -> Result<Tensors, Error> {
        if self.input.is_empty() && !ports.is_empty() {
            let wanted: Vec<_> = ports
                .iter()
                .map(|p| format!("\n  {}: {}", p.name, p.type_text()))
                .collect();
            return Err(Error::Usage(format!(
                "no inputs given: give -i FILE.npz, or --random SEED; the model takes{}",
                wanted.concat()
            )));
        }
        sources::read_inputs(&self.input, ports, rules, &self.dims()?)
    }
}

/// The lengths given, by name.
///
/// # Errors
/// Each that is given twice with different values.
pub(crate) fn dim_values(dims: &[NamedDim]) -> Result<DimValues, Error> {
    let mut values = DimValues::default();
    let mut wrong = Vec::new();
    for NamedDim { name, value } in dims {
        match values.get(name) {
            Some(other) if other != *value => wrong.push(format!(
                "length `{name}` is given twice: --dim {name}={other} and --dim {name}={value}"
            )),
            _ => values.set(name, *value),
        }
    }
    if wrong.is_empty() {
        Ok(values)
    } else {
        Err(Error::Usage(wrong.join("\n")))
    }
}

/// A built-in profile by name, or one that `attnc devices --json` printed, from its file.
pub(crate) fn profile(name: &str) -> Result<DeviceProfile, Error> {
    let path = Path::new(name);
    if path.extension().is_some_and(|e| e == "json") {
        let text = std::fs::read_to_string(path).map_err(|error| Error::Io {
            path: path.to_owned(),
            error,
        })?;
        return serde_json::from_str(&text)
            .map_err(|error| Error::Usage(format!("{name} is no device profile: {error}")));
    }
    DeviceProfile::by_name(name).ok_or_else(|| {
        let known = DeviceProfile::NAMES.join(", ");
        Error::Usage(format!(
            "no profile is named `{name}`; there are {known}, and files that end in .json"
        ))
    })
}

/// Opens a model, with a bar on long loads.
pub(crate) fn open_model(path: &Path) -> Result<Model, Error> {
    let model = progress::during(&format!("loading {}", path.display()), || Model::open(path))?;
    for note in &model.notes {
        note!("note: {note}");
    }
    Ok(model)
}

/// The argument that names a model.
#[derive(clap::Args)]
pub(crate) struct ModelPath {
    /// The model: an .onnx or .attn file
    #[arg(value_name = "MODEL")]
    pub(crate) model: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_whole_numbers() {
        let dims: Vec<NamedDim> = ["B=2", "S=0"].iter().map(|d| d.parse().unwrap()).collect();
        assert_eq!(
            dim_values(&dims).unwrap(),
            DimValues::from([("B", 2), ("S", 0)])
        );
        for wrong in ["B", "B=", "=2", "B=-1", "B=1.5", "B=99999999999999999999"] {
            assert!(wrong.parse::<NamedDim>().is_err(), "{wrong}");
        }
    }
}
