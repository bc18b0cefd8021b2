//! `attnc compile`: a bundle to ship.

use crate::args::{self, Kernels, ModelPath};
use crate::{Outcome, progress, summary};
use attnc::explain::{Attention, Choice, choices_text, plural};
use attnc::plan::bundle;
use attnc::{Error, opt, require_fused};
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    path: ModelPath,
    /// The folder to write; with several profiles, each gets a folder of its name in it
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// The device profile to compile for: webgpu, mobile, desktop, matrix, or a .json file; repeat for more
    #[arg(long = "profile", value_name = "NAME", default_value = "webgpu")]
    profiles: Vec<String>,
    #[command(flatten)]
    kernels: Kernels,
    /// The shader languages to write
    #[arg(long, value_enum, value_delimiter = ',', default_value = "wgsl")]
    emit: Vec<Language>,
    /// Compile without attention fusion
    #[arg(long)]
    no_fuse: bool,
    /// Fail where an attention does not fuse
    #[arg(long)]
    require_fused: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Language {
    Wgsl,
}

pub(crate) fn run(options: &Options) -> Result<Outcome, Error> {
    let profiles = options.profiles.iter().map(|name| args::profile(name));
    let profiles: Vec<_> = profiles.collect::<Result<_, _>>()?;
    let model = args::open_model(&options.path.model)?;
    model.check_shippable()?;
    let passes = opt::Options {
        fuse_attention: !options.no_fuse,
        stop_after: None,
    };
    let optimised = progress::during("optimising", || attnc::optimise(&model.graph, &passes))?;
    let attention = Attention::from(&optimised.attention);
    note!("{}", summary::attention_line(&attention));
    summary::print_declined(&attention);
    if options.require_fused {
        require_fused(&optimised.attention)?;
    }
    let choices = options.kernels.choices();
    for profile in &profiles {
        let dir = match profiles.len() {
            1 => options.output.clone(),
            _ => options.output.join(&profile.name),
        };
        let compiled = attnc::lower_with(&optimised.graph, profile, &choices)?.named_after(&model);
        compiled.check_weights()?;
        progress::during("writing", || {
            bundle::write(&dir, &compiled.plan, &compiled.weights)
        })?;
        let kernels = plural(compiled.plan.kernels.len(), "kernel");
        let steps = plural(compiled.plan.steps.len(), "step");
        say!(
            "{}: {steps} of {kernels} for {}",
            dir.display(),
            profile.name
        );
        let chosen = choices_text(&Choice::of(&compiled.decisions));
        if !chosen.is_empty() {
            say!("{}", chosen.trim_end());
        }
    }
    Ok(Outcome::Good)
}
