//! The report as people read it.

use super::{Attention, Buffers, Remark, Report, Tiles, choices_text};
use indexmap::IndexMap;
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
    tiles(out, &report.tiles)?;
    remarks(out, report)?;
    kernels(out, report)?;
    let chosen = choices_text(&report.choices);
    if !chosen.is_empty() {
        write!(out, "\nkernels chosen\n{chosen}")?;
    }
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

/// What of each distinct attention is skipped.
fn tiles(out: &mut String, tiles: &[Tiles]) -> std::fmt::Result {
    if !tiles.is_empty() {
        writeln!(out, "\ntiles of attention")?;
    }
    for found in tiles {
        let Tiles {
            nodes,
            mask,
            tile,
            lengths: [m, n],
            empty,
            full,
            partial,
            by_data,
            ..
        } = found;
        let more = if nodes.len() > 1 { ", …" } else { "" };
        let count = nodes.len();
        let keys = if mask == "true" { "every key" } else { mask };
        writeln!(out, "  {count} × {keys} [{}{more}]", nodes[0])?;
        let counts = [
            (empty, "empty"),
            (full, "full"),
            (partial, "partial"),
            (by_data, "by data"),
        ];
        let counts = counts.iter().filter(|(n, _)| **n > 0);
        let counts: Vec<_> = counts.map(|(n, kind)| format!("{n} {kind}")).collect();
        let most = if *by_data > 0 { "at most " } else { "" };
        writeln!(
            out,
            "      {m} queries × {n} keys in tiles of {tile}: {}; {most}{:.1} % of the work left",
            counts.join(", "),
            100.0 * found.work_left
        )?;
        if let Some(note) = &found.note {
            writeln!(out, "      {note}")?;
        }
    }
    Ok(())
}

/// What was fused or recognised. Remarks that differ only in the numbers of nodes, as those of a model's
/// layers do, share a line.
fn remarks(out: &mut String, report: &Report) -> std::fmt::Result {
    let mut groups: IndexMap<(&str, &str, String), Vec<&Remark>> = IndexMap::new();
    for remark in &report.remarks {
        // Those were listed with the attention.
        if remark.kind == "declined" && remark.pass == "fuse-attention" {
            continue;
        }
        let key = (
            remark.pass.as_str(),
            remark.kind.as_str(),
            without_numbers(&remark.message),
        );
        groups.entry(key).or_default().push(remark);
    }
    if !groups.is_empty() {
        writeln!(out, "\nremarks")?;
    }
    for ((pass, kind, _), group) in groups {
        let (first, more) = (group[0], group.len() > 1);
        let count = if more {
            format!("{} × ", group.len())
        } else {
            String::new()
        };
        let node = first.nodes.first().map_or(String::new(), |node| {
            format!(" [{node}{}]", if more { ", …" } else { "" })
        });
        let at = first.at.as_ref().filter(|_| !more);
        let at = at.map_or(String::new(), |at| format!(" (at {at})"));
        writeln!(out, "  {pass}: {count}{kind}: {}{node}{at}", first.message)?;
    }
    Ok(())
}

/// `node_linear_12` and `node_linear` are the same here, but `0.125` is not `0.25`.
fn without_numbers(message: &str) -> String {
    let words = message.split_inclusive(|c: char| c.is_whitespace() || c == ',');
    let stem = |word: &str| {
        if word.starts_with(|c: char| c.is_alphabetic() || c == '/' || c == '_') {
            word.replace(|c: char| c.is_ascii_digit(), "")
                .replace('_', "")
        } else {
            word.to_owned()
        }
    };
    words.map(stem).collect()
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
        let images = match kernel.images.as_slice() {
            [] => String::new(),
            images => format!("  ({} from images)", images.join(", ")),
        };
        let halves = kernel.storage.iter().any(|s| matches!(*s, "f16" | "bf16"));
        let precision = if halves {
            format!("  (computes in {})", kernel.precision)
        } else {
            String::new()
        };
        writeln!(
            out,
            "  {:4} × {}{precision}{memory}{images}",
            kernel.uses, kernel.name
        )?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_share_a_line_and_constants_do_not() {
        let same = |a: &str, b: &str| without_numbers(a) == without_numbers(b);
        assert!(same(
            "matmul takes linear, add_4",
            "matmul takes linear_12, add_5"
        ));
        assert!(!same(
            "one attention: scale = 0.125",
            "one attention: scale = 0.25"
        ));
        assert!(!same("matmul takes linear", "matmul takes gelu"));
    }

    #[test]
    fn numbers_of_things_read_well() {
        assert_eq!(
            (plural(1, "step"), plural(2, "step")),
            ("1 step".into(), "2 steps".into())
        );
    }
}
