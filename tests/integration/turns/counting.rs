//! The counting build of a plan: kernels with a counter in each loop, and an output for what an invocation took at most.
//!
//! Counted is what a driver counts that masks lanes and takes no branch but at the end of a loop: each round, the turn of
//! the test by which a loop ends, and one turn of each loop that no lane takes part in: what is left of a round behind
//! that test or a `continue`, and the branch of an `if` that is not taken. Branches on constants are left out, as any
//! compiler does.
//!
//! On entry: texts as the linker writes them, a statement a line, blocks by indentation. On exit: valid texts.

use super::takes_tiles;
use crate::support::ensure;
use attnc::plan::{Access, Binding, DType, Dim, Plan, Port};
use libtest_mimic::Failed;
use std::collections::BTreeMap;

/// The plan with an output for each step: the turns that one of its invocations took at most.
pub(super) fn counting(plan: &Plan) -> Result<Plan, Failed> {
    let mut plan = plan.clone();
    for kernel in &mut plan.kernels {
        let own: Vec<u32> = kernel
            .bindings
            .iter()
            .filter(|b| b.group == 0)
            .map(|b| b.binding)
            .collect();
        let (at, binding) = (own.len(), own.iter().max().map_or(0, |last| last + 1));
        kernel.wgsl = counted(&kernel.wgsl, &kernel.entry, binding)?;
        kernel
            .bindings
            .insert(at, Binding::new(binding, Access::ReadWrite, "turns_seen"));
    }
    for n in 0..plan.steps.len() {
        let buffer = plan.add_output(Port::new(
            &format!("turns.{n}"),
            DType::U32,
            vec![Dim::one()],
        ));
        if takes_tiles(&plan, &plan.steps[n]) {
            plan.steps[n].grid = [Dim::one(), Dim::one(), Dim::one()];
        }
        let kernel = plan.kernel(plan.steps[n].kernel);
        let at = kernel
            .storage_bindings()
            .position(|b| b.name == "turns_seen")
            .ok_or("no counter")?;
        plan.steps[n].bindings.insert(at, buffer);
    }
    Ok(plan)
}

/// The text with a counter in each loop.
fn counted(text: &str, entry: &str, binding: u32) -> Result<String, Failed> {
    let lines = without_dead_branches(text);
    let loops = Loops::of(&lines);
    let mut idle = loops.of_branches(&lines);
    let mut out = String::new();
    let (mut inside, mut done) = (false, false);
    // Where the loops end that the line is in, the innermost last.
    let mut ends: Vec<usize> = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        ends.retain(|end| at < *end);
        let code = line.trim_start();
        inside |= code.starts_with(&format!("fn {entry}("));
        if inside && *line == "}" {
            (inside, done) = (false, true);
            out += "    atomicMax(&turns_seen, turns_taken);\n";
        }
        if let (true, Some(end)) = (code.starts_with("continue;"), ends.last()) {
            let left = loops.count(&lines[at + 1..*end]);
            out += &format!("turns_taken += {left}u;\n");
        }
        if let Some(count) = idle.remove(&Place::Behind(at)) {
            out += &format!("{line} else {{ turns_taken += {count}u; }}\n");
            continue;
        }
        let ends_by_test = code.starts_with("for ") || code.starts_with("while ");
        let is_loop = ends_by_test || code.starts_with("loop ");
        let of_branch = idle.remove(&Place::In(at));
        let end = if is_loop {
            end_of_block(&lines, at)
        } else {
            at
        };
        if ends_by_test {
            let idle = 1 + loops.count(&lines[at + 1..end]);
            out += &format!("turns_taken += {idle}u;\n");
        }
        out += line;
        out += "\n";
        if let Some(count) = of_branch {
            out += &format!("turns_taken += {count}u;\n");
        }
        if is_loop {
            ensure(code.ends_with('{'), || {
                format!("a loop of more lines than one: {code}")
            })?;
            out += "turns_taken++;\n";
            ends.push(end);
        }
        let words = ["for (", "while ", "loop {"];
        let hidden =
            words.iter().any(|word| code.contains(word)) && !is_loop && !code.starts_with("//");
        ensure(!hidden, || format!("a loop that is not counted: {code}"))?;
    }
    ensure(done, || format!("no end of `{entry}`"))?;
    Ok(format!(
        "{out}\nvar<private> turns_taken: u32;\n\
         @group(0) @binding({binding}) var<storage, read_write> turns_seen: atomic<u32>;\n"
    ))
}

/// The text without blocks `if NAME {` and `if !NAME {` of a constant by which they are never entered.
fn without_dead_branches(text: &str) -> Vec<&str> {
    let is = |name: &str, value: bool| {
        let [typed, untyped] = [": bool", ""].map(|ty| format!("const {name}{ty} = {value};"));
        text.lines().any(|line| line == typed || line == untyped)
    };
    let lines: Vec<&str> = text.lines().collect();
    let mut kept = Vec::new();
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        let condition = line.trim_start().strip_prefix("if ");
        let condition = condition.and_then(|rest| rest.strip_suffix(" {"));
        let dead = condition.is_some_and(|name| match name.strip_prefix('!') {
            Some(name) => is(name, true),
            None => is(name, false),
        });
        let end = end_of_block(&lines, at);
        if dead && lines.get(end).is_some_and(|line| line.trim() == "}") {
            at = end;
        } else {
            kept.push(*line);
        }
        at += 1;
    }
    kept
}

/// Where turns of a branch that is not taken are added: in the other one, or behind an `if` that has none.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    In(usize),
    Behind(usize),
}

/// The line that closes the block which a line opens, or goes on with `} else`.
fn end_of_block(lines: &[&str], start: usize) -> usize {
    let indent = lines[start].len() - lines[start].trim_start().len();
    let close = format!("{}}}", " ".repeat(indent));
    let closes = |line: &&str| {
        line.strip_prefix(&close)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(" else"))
    };
    let length = lines[start + 1..].iter().position(closes);
    length.map_or(lines.len(), |length| start + 1 + length)
}

/// How many loops the functions of a text have, those of functions they call included.
struct Loops<'t> {
    of: BTreeMap<&'t str, u32>,
}

impl<'t> Loops<'t> {
    fn of(lines: &[&'t str]) -> Self {
        let mut bodies = BTreeMap::new();
        for (at, line) in lines.iter().enumerate() {
            if let Some((name, _)) = line.strip_prefix("fn ").and_then(|l| l.split_once('(')) {
                bodies.insert(name, &lines[at + 1..end_of_block(lines, at)]);
            }
        }
        let mut loops = Self {
            of: BTreeMap::new(),
        };
        // Functions call no deeper than there are functions, and none calls itself.
        for _ in 0..bodies.len() {
            let counts: BTreeMap<_, _> = bodies
                .iter()
                .map(|(name, body)| (*name, loops.count(body)))
                .collect();
            if counts == loops.of {
                break;
            }
            loops.of = counts;
        }
        loops
    }

    /// Turns of the branches with loops in them, where they are not taken.
    fn of_branches(&self, lines: &[&str]) -> BTreeMap<Place, u32> {
        let mut places = BTreeMap::new();
        for at in 0..lines.len() {
            if !lines[at].trim_start().starts_with("if ") || !lines[at].ends_with('{') {
                continue;
            }
            let end = end_of_block(lines, at);
            let taken = self.count(&lines[at + 1..end.min(lines.len())]);
            match lines.get(end).map(|line| line.trim_start()) {
                Some("}") if taken > 0 => {
                    places.insert(Place::Behind(end), taken);
                }
                Some("} else {") => {
                    let other = self.count(&lines[end + 1..end_of_block(lines, end)]);
                    places.insert(Place::In(at), other);
                    places.insert(Place::In(end), taken);
                }
                _ => {}
            }
        }
        places
    }

    /// Loops of some lines, and of what they call.
    fn count(&self, lines: &[&str]) -> u32 {
        let code = lines.iter().map(|line| line.trim_start());
        let code = code.filter(|line| !line.starts_with("//"));
        code.map(|line| {
            let starts = ["for ", "while ", "loop "];
            let own = u32::from(starts.iter().any(|word| line.starts_with(word)));
            own + self.called(line)
        })
        .sum()
    }

    fn called(&self, line: &str) -> u32 {
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let calls = line.match_indices('(').map(|(at, _)| {
            let name = line[..at].rsplit(|c| !is_name(c)).next();
            name.and_then(|name| self.of.get(name)).copied()
        });
        calls.flatten().sum()
    }
}
