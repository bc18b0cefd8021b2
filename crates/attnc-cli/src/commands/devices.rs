//! `attnc devices`: the adapters there are, and the built-in profiles.

use crate::{Outcome, summary};
use attnc::Error;
use attnc::gpu::{self, AdapterDescription};
use attnc::plan::DeviceProfile;
use serde::Serialize;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report {
    /// What `--backend auto` uses.
    auto: String,
    adapters: Vec<Adapter>,
    profiles: Vec<DeviceProfile>,
}

#[derive(Serialize)]
struct Adapter {
    name: String,
    api: String,
    driver: String,
    kind: String,
    timestamps: bool,
    profile: DeviceProfile,
}

pub(crate) fn run(options: &Options) -> Result<Outcome, Error> {
    let found: Vec<_> = gpu::adapters().iter().map(gpu::describe).collect();
    let real = found.iter().find(|a| a.is_real_gpu());
    let report = Report {
        auto: real.map_or_else(|| "cpu".to_owned(), AdapterDescription::line),
        adapters: found.iter().map(adapter).collect(),
        profiles: DeviceProfile::NAMES
            .iter()
            .filter_map(|name| DeviceProfile::by_name(name))
            .collect(),
    };
    if options.json {
        summary::print_json(&report)?;
    } else {
        print(&report, &found);
    }
    Ok(Outcome::Good)
}

fn adapter(found: &AdapterDescription) -> Adapter {
    Adapter {
        name: found.name.clone(),
        api: found.backend.clone(),
        driver: found.driver.clone(),
        kind: found.kind.to_owned(),
        timestamps: found.timestamps,
        profile: found.profile.clone(),
    }
}

fn print(report: &Report, found: &[AdapterDescription]) {
    say!("adapters");
    if found.is_empty() {
        say!("  none; models run on the CPU");
    }
    for adapter in found {
        say!("  {}", adapter.line());
        say!("    {}", abilities(&adapter.profile));
    }
    say!("--backend auto uses {}", report.auto);
    say!("profiles");
    for profile in &report.profiles {
        say!("  {:8} {}", profile.name, abilities(profile));
    }
}

fn abilities(profile: &DeviceProfile) -> String {
    let (limits, features) = (&profile.limits, &profile.features);
    let mut text = format!(
        "{} KiB of workgroup memory, {} storage buffers, bindings of {} MiB",
        limits.workgroup_bytes >> 10,
        limits.storage_buffers,
        limits.binding_bytes >> 20
    );
    if features.f16 {
        text.push_str(", f16");
    }
    if let Some(sizes) = features.subgroups {
        text.push_str(&format!(", subgroups of {} to {}", sizes.min, sizes.max));
    }
    if !features.cooperative_matrix.is_empty() {
        text.push_str(", cooperative matrices");
    }
    text
}
