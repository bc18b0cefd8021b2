//! The report as people read it.

use super::{Attention, Buffers, Report};
use std::fmt::Write as _;

/// The report in words, a dozen lines for a dozen layers.
#[must_use]
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write(&mut out, report);
    out
}

fn write(out: &mut String, report: &Report) -> std::fmt::Result {
    writeln!(out, "{} for {}", report.model, report.profile)?;
    for (title, ports) in [("in ", &report.inputs), ("out", &report.outputs)] {
        for port in ports {
            writeln!(out, "  {title}  {port}")?;
        }
    }
    writeln!(out, "\nattention: {}", attention(&report.attention))?;
    for declined in &report.attention.declined {
        writeln!(out, "  declined  {}: {}", declined.node, declined.reason)?;
        if let Some(at) = &declined.at {
            writeln!(out, "            at {at}")?;
        }
    }
    remarks(out, report)?;
    kernels(out, report)?;
    buffers(out, &report.buffers)?;
    for note in &report.notes {
        writeln!(out, "note: {note}")?;
    }
    Ok(())
}

fn attention(attention: &Attention) -> String {
    match (attention.found, attention.fused) {
        (0, 0) => "none found".to_owned(),
        (found, fused) if found == fused => format!("{found} found, all fused"),
        (found, fused) => format!("{found} found, {fused} fused"),
    }
}

/// What was fused or recognised; remarks that differ in their nodes only share a line.
fn remarks(out: &mut String, report: &Report) -> std::fmt::Result {
    let mut groups: indexmap::IndexMap<(&str, &str, &str), Vec<&str>> = indexmap::IndexMap::new();
    for remark in report
        .remarks
        .iter()
        .filter(|r| r.kind != "declined" || r.pass != "fuse-attention")
    {
        let key = (
            remark.pass.as_str(),
            remark.kind.as_str(),
            remark.message.as_str(),
        );
        let nodes = groups.entry(key).or_default();
        nodes.extend(remark.nodes.first().map(String::as_str));
    }
    if !groups.is_empty() {
        writeln!(out, "\nremarks")?;
    }
    for ((pass, kind, message), nodes) in groups {
        let count = if nodes.len() > 1 {
            format!("{} × ", nodes.len())
        } else {
            String::new()
        };
        let first = nodes
            .first()
            .map(|n| format!(" [{n}{}]", if nodes.len() > 1 { ", …" } else { "" }));
        let first = first.unwrap_or_default();
        writeln!(out, "  {pass}: {count}{kind}: {message}{first}")?;
    }
    Ok(())
}

fn kernels(out: &mut String, report: &Report) -> std::fmt::Result {
    let steps = plural(report.steps, "step");
    let distinct = plural(report.kernels.len(), "kernel");
    writeln!(out, "\n{steps} of {distinct}")?;
    for kernel in &report.kernels {
        let memory = match kernel.workgroup_bytes {
            0 => String::new(),
            bytes => format!("  ({bytes} bytes of workgroup memory)"),
        };
        writeln!(out, "  {:4} × {}{memory}", kernel.uses, kernel.name)?;
    }
    Ok(())
}

fn buffers(out: &mut String, buffers: &Buffers) -> std::fmt::Result {
    writeln!(out, "\nmemory")?;
    writeln!(out, "  weights               {} bytes", buffers.weights)?;
    let peak = &buffers.arena_peak;
    match buffers.arena_peak_bytes {
        Some(bytes) => writeln!(out, "  arena                 {bytes} bytes; {peak}")?,
        None => writeln!(out, "  arena                 {peak} bytes")?,
    }
    writeln!(
        out,
        "  largest intermediate  {}",
        buffers.largest_intermediate
    )
}

/// `1 step`, `2 steps`.
#[must_use]
pub fn plural(n: usize, what: &str) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{n} {what}{s}")
}
