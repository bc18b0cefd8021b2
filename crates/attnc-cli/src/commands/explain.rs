//! `attnc explain`: what became of a model.

use crate::args::{self, Cache, Kernels, ModelPath, NamedDim};
use crate::{Outcome, progress, summary};
use attnc::backend::{Backends, Wish};
use attnc::codegen::choice::Choices;
use attnc::plan::{DeviceProfile, DimValues};
use attnc::{Error, explain, opt, require_fused, tune};

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    path: ModelPath,
    /// How to say it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// The device profile to compile for: webgpu, mobile, desktop, matrix, or a .json file
    #[arg(long, default_value = "webgpu")]
    profile: String,
    /// Compile for a device of this machine instead, with the kernels that `attnc tune` found the fastest there:
    /// gpu (a software adapter will do)
    #[arg(long, conflicts_with = "profile")]
    backend: Option<String>,
    /// With --backend: use the first adapter whose description contains TEXT
    #[arg(long, value_name = "TEXT", requires = "backend")]
    adapter: Option<String>,
    #[command(flatten)]
    cache: Cache,
    #[command(flatten)]
    kernels: Kernels,
    /// Stop the passes after N rewrites
    #[arg(long, value_name = "N")]
    stop_after: Option<usize>,
    /// Compile without attention fusion
    #[arg(long)]
    no_fuse: bool,
    /// Fail where an attention does not fuse
    #[arg(long)]
    require_fused: bool,
    /// The value of a length, to say what the arena takes and which tiles of attention are left; repeat for
    /// more. Lengths that are not given are 1
    #[arg(long = "dim", value_name = "NAME=N")]
    dims: Vec<NamedDim>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Words
    Text,
    /// One JSON object
    Json,
    /// A picture for Graphviz
    Dot,
    /// A picture for Markdown
    Mermaid,
    /// The optimised graph in the text form
    Attn,
}

pub(crate) fn run(options: &Options) -> Result<Outcome, Error> {
    let model = args::open_model(&options.path.model)?;
    let passes = opt::Options {
        fuse_attention: !options.no_fuse,
        stop_after: options.stop_after,
    };
    let (profile, choices) = device(options)?;
    let mut explained = progress::during("compiling", || {
        explain::explain_with(&model, &passes, &profile, &choices)
    })?;
    if !options.dims.is_empty() {
        explained = at(explained, args::dim_values(&options.dims)?)?;
    }
    match if options.json {
        Format::Json
    } else {
        options.format
    } {
        Format::Text => say!("{}", explain::text(&explained.report).trim_end()),
        Format::Json => summary::print_json(&explained.report)?,
        Format::Dot => say!("{}", explain::dot(&explained.optimised.graph).trim_end()),
        Format::Mermaid => say!(
            "{}",
            explain::mermaid(&explained.optimised.graph).trim_end()
        ),
        Format::Attn => say!(
            "{}",
            attnc::ir::text::print(&explained.optimised.graph).trim_end()
        ),
    }
    if options.require_fused {
        require_fused(&explained.optimised.attention)?;
    }
    Ok(Outcome::Good)
}

/// What is compiled for, and which kernels are preferred there.
fn device(options: &Options) -> Result<(DeviceProfile, Choices), Error> {
    let choices = options.kernels.choices();
    let Some(name) = &options.backend else {
        return Ok((args::profile(&options.profile)?, choices));
    };
    let folder = options.cache.folder();
    let wish = Wish {
        adapter: options.adapter.as_deref(),
        cache: folder.as_deref(),
    };
    let backend = Backends::standard().open(name, &wish)?.backend;
    if backend.tuned().is_none() {
        return Err(Error::BackendCannot {
            backend: backend.name().to_owned(),
            what: "be explained: it runs no kernels; give --backend gpu or --profile NAME"
                .to_owned(),
        });
    }
    for note in backend.notes() {
        note!("note: {note}");
    }
    Ok((
        backend.profile(),
        tune::with_known(&choices, backend.as_ref()),
    ))
}

/// The report at those lengths. What is asked about one length seldom depends on the others: they are 1.
fn at(explained: explain::Explained, mut dims: DimValues) -> Result<explain::Explained, Error> {
    let all = explained.report.dims.iter();
    let missing: Vec<String> = all.filter(|d| dims.get(d).is_none()).cloned().collect();
    for name in &missing {
        dims.set(name, 1);
    }
    if !missing.is_empty() {
        note!("not given, so taken as 1: {}", missing.join(", "));
    }
    explained.at(&dims)
}
