//! A line scan of one WGSL module: its import and enable lines, and the names it declares at module scope.
//!
//! It is no parser: it strips comments, counts brackets, and reads the word after `const`, `alias`,
//! `struct`, `fn`, `var` or `override` outside of all brackets. That is exact for valid WGSL, and naga
//! judges the rest.

use super::{LinkProblem, SourceLine};

/// `import package::lib::indexing::{div_ceil, linear_workgroup};`
#[derive(Debug, Clone)]
pub(super) struct Import {
    pub(super) at: SourceLine,
    /// `lib::indexing`
    pub(super) module: String,
    pub(super) names: Vec<String>,
}

/// What one module imports and declares.
#[derive(Debug, Default)]
pub(super) struct Scan {
    pub(super) imports: Vec<Import>,
    pub(super) import_lines: Vec<u32>,
    /// Lines such as `enable f16;`, which stand before everything else of a shader.
    pub(super) enables: Vec<(String, SourceLine)>,
    pub(super) malformed: Vec<LinkProblem>,
    /// In the order of the text.
    pub(super) declarations: Vec<(String, SourceLine)>,
}

/// Reads `source`, which errors call `file`.
pub(super) fn scan(file: &str, source: &str) -> Scan {
    let mut result = Scan::default();
    let mut depth = 0u32;
    let mut keyword_seen = false;
    let mut in_template = false;
    let code = strip_comments(source);
    for (line, text) in (1..).zip(code.lines()) {
        let at = SourceLine {
            file: file.to_owned(),
            line,
        };
        let trimmed = text.trim();
        if depth == 0 && trimmed.split_whitespace().next() == Some("import") {
            result.import_lines.push(line);
            match parse_import(trimmed, at.clone()) {
                Some(import) => result.imports.push(import),
                None => result.malformed.push(LinkProblem::MalformedImport {
                    at,
                    text: trimmed.to_owned(),
                }),
            }
            continue;
        }
        if depth == 0 && trimmed.split_whitespace().next() == Some("enable") {
            result.enables.push((trimmed.to_owned(), at));
            continue;
        }
        for token in tokens(text) {
            match token {
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => depth = depth.saturating_sub(1),
                "const" | "alias" | "struct" | "fn" | "var" | "override" if depth == 0 => {
                    keyword_seen = true;
                }
                // `<storage, read>` between `var` and its name.
                "<" => in_template = keyword_seen,
                ">" => in_template = false,
                name if keyword_seen && !in_template && depth == 0 => {
                    keyword_seen = false;
                    result.declarations.push((name.to_owned(), at.clone()));
                }
                _ => {}
            }
        }
    }
    result
}

/// Words and single brackets of a line; everything else separates.
fn tokens(text: &str) -> impl Iterator<Item = &str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut rest = text;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches(|c: char| !is_word(c) && !"{}()[]<>".contains(c));
        let first = rest.chars().next()?;
        let end = if is_word(first) {
            rest.find(|c: char| !is_word(c)).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        let (token, tail) = rest.split_at(end);
        rest = tail;
        Some(token)
    })
}

fn parse_import(text: &str, at: SourceLine) -> Option<Import> {
    let path = text
        .strip_prefix("import")?
        .trim()
        .strip_prefix("package::")?
        .strip_suffix(';')?;
    let (module, names) = match path.split_once("::{") {
        Some((module, names)) => (module, names.strip_suffix('}')?),
        None => path.rsplit_once("::")?,
    };
    let is_name = |name: &str| {
        !name.is_empty()
            && name.chars().all(|c| c.is_alphanumeric() || c == '_')
            && !name.starts_with(char::is_numeric)
    };
    let names: Vec<String> = names
        .split(',')
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .collect();
    let well_formed = !names.is_empty()
        && names.iter().all(|name| is_name(name))
        && module.split("::").all(is_name);
    well_formed.then(|| Import {
        at,
        module: module.to_owned(),
        names,
    })
}

/// Replaces comments by blanks, keeping every line break.
fn strip_comments(source: &str) -> String {
    let mut result = String::with_capacity(source.len());
    let mut rest = source;
    let mut block_depth = 0u32; // block comments nest in WGSL
    while let Some(c) = rest.chars().next() {
        let (skip, keep) = if rest.starts_with("/*") {
            block_depth += 1;
            (2, " ")
        } else if block_depth > 0 && rest.starts_with("*/") {
            block_depth -= 1;
            (2, " ")
        } else if block_depth == 0 && rest.starts_with("//") {
            (rest.find('\n').unwrap_or(rest.len()), "")
        } else if block_depth > 0 {
            (c.len_utf8(), if c == '\n' { "\n" } else { "" })
        } else {
            (c.len_utf8(), &rest[..c.len_utf8()])
        };
        result.push_str(keep);
        rest = &rest[skip..];
    }
    result
}
